// Text that a trained model writes.
#pragma once

#include <cstdint>
#include <string>

#include "common/model/gpt.hpp"

namespace ladder {

struct GenerateOptions {
  std::int64_t max_tokens = 400;  // of the continuation
  double temperature = 0.7;       // 0: always the likeliest token
  std::uint64_t seed = 1;
};

// The model's continuation of `prompt` (without it), up to the end of the text. Bytes in, bytes
// out. Local.
std::string generate(const Gpt& model, const std::string& prompt, const GenerateOptions& options);

}  // namespace ladder
