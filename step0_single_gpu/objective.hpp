// What a model is trained for, kept apart from the model.
//
// The model turns tokens into outputs; an objective scores them. It does two things: it counts
// what it scores in a batch, such as target tokens, and it sums their losses over a microbatch's
// outputs. The count is the one denominator (accumulate_gradients.hpp), known before the first
// forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "common/data/batch.hpp"
#include "common/model/model.hpp"
#include "common/model/parts.hpp"

namespace ladder {

// What a model's forward has returned, and which parts of it that is (common/model/parts.hpp).
struct Outputs {
  Outputs(at::Tensor all, VocabParts which = {})  // NOLINT(*-explicit-*)
      : values(std::move(all)), parts(std::move(which)) {}
  operator const at::Tensor&() const { return values; }  // NOLINT(*-explicit-*)
  at::Tensor values;
  VocabParts parts;
};

struct Objective {
  std::function<std::int64_t(const Microbatches& batch)> count;
  // Returns [], differentiable. Outputs are a tensor for all who need not know of parts.
  std::function<at::Tensor(const Outputs& outputs, const Microbatch& microbatch)> loss_sum;
};

// Sum over targets of -log softmax(logits)[target], in nats; kIgnoredTarget adds nothing, so the
// sum is 0 if every target is ignored. logits [..., V], targets [...] int64 -> [], fp32 for 16-bit
// logits: a sum over thousands of targets has no place in 16 bits. On a GPU, logits are fp32, bf16
// or fp16, and kernels compute the same in one pass (cross_entropy_on_gpu.hpp).
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

// The same of logits that may be in parts of their vocabulary (cross_entropy_in_parts.hpp).
at::Tensor cross_entropy_sum(const Outputs& logits, const at::Tensor& targets);

// Next-token prediction: cross_entropy_sum() of logits [B, T, V]; counts target tokens.
inline const Objective kNextToken = {
    .count = [](const Microbatches& batch) { return batch.num_targets(); },
    .loss_sum = [](const Outputs& logits,
                   const Microbatch& m) { return cross_entropy_sum(logits, m.targets); },
};

// A forward and an objective in one: returns the summed loss [] of a microbatch, differentiable.
using LossSum = std::function<at::Tensor(const Microbatch& microbatch)>;

// The LossSum of any model that has forward(tokens) and vocab_parts_of(). Lifetime: `model` outlives the
// result.
template <class AnyModel>
LossSum loss_of(AnyModel& model, const Objective& objective) {
  return [&model, objective](const Microbatch& microbatch) {
    return objective.loss_sum({model.forward(microbatch.tokens), vocab_parts_of(model)},
                              microbatch);
  };
}

}  // namespace ladder
