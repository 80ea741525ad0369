// What a model is trained for, kept apart from the model.
//
// The model turns tokens into outputs; an objective says how good they are. It does two things: it
// counts its unit in a batch, and it sums its loss over a microbatch's outputs. The one denominator
// (accumulate_gradients.hpp) is a count, and it is known before the first forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "common/data/batch.hpp"

namespace ladder {

struct Objective {
  std::int64_t (*count)(const Microbatches& batch);
  // outputs: what the model's forward returned for these tokens. -> [], which can be differentiated.
  at::Tensor (*loss_sum)(const at::Tensor& outputs, const Microbatch& microbatch);
};

// Sum over targets of -log softmax(logits)[target], in nats; kIgnoredTarget adds nothing, and if
// nothing else is left the sum is 0. logits [..., V], targets [...] int64 -> [].
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

// Predict the next token: cross_entropy_sum() of logits [B, T, V]; the unit is one target token.
inline constexpr Objective kNextToken = {
    .count = [](const Microbatches& batch) { return batch.num_targets(); },
    .loss_sum = [](const at::Tensor& logits,
                   const Microbatch& m) { return cross_entropy_sum(logits, m.targets); },
};

// A forward and an objective in one: the summed loss [] of a microbatch, which can be differentiated.
using LossSum = std::function<at::Tensor(const Microbatch& microbatch)>;

// Of anything that has a forward(tokens). Lifetime: `model` outlives what is returned.
template <class AnyModel>
LossSum loss_of(AnyModel& model, const Objective& objective) {
  return [&model, objective](const Microbatch& microbatch) {
    return objective.loss_sum(model.forward(microbatch.tokens), microbatch);
  };
}

}  // namespace ladder
