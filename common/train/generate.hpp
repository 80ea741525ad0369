// Text that a trained model writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/model/gpt.hpp"

namespace ladder {

// The model's continuation of `prompt` (without it), up to the end of the text or max_tokens. Bytes
// in, bytes out; drawn at temperature 0.7, the same for the same seed. Local.
std::string generate(const Gpt& model, const std::string& prompt, std::uint64_t seed,
                     std::int64_t max_tokens = 400);

// The same with any function that gives logits [1, T, V] of tokens [1, T], for a model of this shape.
// Called equally often on all ranks that pass the same.
std::string generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                     const GptOptions& shape, const std::string& prompt, std::uint64_t seed,
                     std::int64_t max_tokens = 400);

}  // namespace ladder
