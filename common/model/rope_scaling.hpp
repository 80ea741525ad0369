// How rotary positions are slowed down, so that a model reads longer texts than those that it was
// trained with.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

// Position t turns the i-th pair of a head's d channels by t times its speed, 1 / theta^(2i/d).
//
//   none      that speed
//   linear    the speed divided by `factor` (Chen et al., arXiv 2306.15595)
//   llama3    what turns more than high_turns times within `original_context` keeps its speed;
//             what turns less than low_turns times has it divided by `factor`; what is between has
//             a mean of the two (Llama 3.1's)
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_turns = 1, high_turns = 4;
  std::int64_t original_context = 8192;

  bool operator==(const RopeScaling&) const = default;
};

// "none", "linear:FACTOR" or "llama3:FACTOR:LOW:HIGH:CONTEXT", as --rope-scaling has it. Numbers
// read back to the same bits.
std::string to_text(const RopeScaling& scaling);
// Throws UsageError with the text, if it is none of these, or if a number is not above 0, or
// HIGH not above LOW.
RopeScaling parse_rope_scaling(const std::string& text);

}  // namespace ladder
