// Text generation with a trained model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "common/train/options/options.hpp"

namespace ladder {

// Returns a continuation of options.output.sample, without the sample itself, up to the end of the
// text or max_tokens; with --rows chat, the assistant's answer to it. Drawn at temperature 0.7 from
// the tokens that the tokenizer has, the same for the same seed. `forward` returns the logits
// [1, T, V] of tokens [1, T], T ≤ context, or only the last ones, [1, 1, V]. Ranks that pass the
// same options and get the same logits call it equally often. Throws CheckError if the data have no
// tokenizer, or the model's vocabulary is smaller than the tokenizer's.
std::string generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                     const TrainOptions& options, std::int64_t max_tokens = 400);

// Generates with any model that has forward(tokens).
template <class AnyModel>
std::string generate(AnyModel& model, const TrainOptions& options) {
  return generate([&model](const at::Tensor& tokens) { return model.forward(tokens); }, options);
}

// Throws what generate() would throw after the last step. To be called before the first one.
void check_can_generate(const TrainOptions& options);

}  // namespace ladder
