#include "common/model/rope_scaling.hpp"

#include <array>
#include <charconv>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// As few digits as read back to the same number.
std::string shortest(double number) {
  std::array<char, 32> digits = {};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), end};
}

// The numbers behind the name, or nothing if there are others than so many, all above 0.
std::vector<double> numbers_behind(const std::string& text, std::size_t begin, std::size_t count) {
  constexpr double kMost = 1e30;  // as of an option
  std::vector<double> numbers;
  const char* at = text.data() + begin;
  const char* const end = text.data() + text.size();
  while (at != end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    const bool is_number = error == std::errc() && number > 0 && number <= kMost;
    const bool is_separated = next == end || (*next == ':' && next + 1 != end);
    if (!is_number || !is_separated) return {};
    numbers.push_back(number);
    at = next == end ? end : next + 1;
  }
  return numbers.size() == count ? numbers : std::vector<double>();
}

}  // namespace

std::string to_text(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return "none";
    case RopeScaling::Kind::kLinear:
      return "linear:" + shortest(scaling.factor);
    case RopeScaling::Kind::kLlama3:
      return concat("llama3:", shortest(scaling.factor), ":", shortest(scaling.low_turns), ":",
                    shortest(scaling.high_turns), ":", scaling.original_context);
  }
  throw CheckError("--rope-scaling: no such kind");
}

RopeScaling parse_rope_scaling(const std::string& text) {
  constexpr std::string_view kLinear = "linear:", kLlama3 = "llama3:";
  if (text == "none") return {};
  if (text.starts_with(kLinear)) {
    const auto numbers = numbers_behind(text, kLinear.size(), 1);
    if (!numbers.empty()) return {.kind = RopeScaling::Kind::kLinear, .factor = numbers[0]};
  }
  if (text.starts_with(kLlama3)) {
    const auto numbers = numbers_behind(text, kLlama3.size(), 4);
    const bool is_whole = !numbers.empty() && numbers[3] < 0x1p31 &&
                          numbers[3] == static_cast<double>(static_cast<std::int64_t>(numbers[3]));
    if (is_whole && numbers[2] > numbers[1])
      return {.kind = RopeScaling::Kind::kLlama3,
              .factor = numbers[0],
              .low_turns = numbers[1],
              .high_turns = numbers[2],
              .original_context = static_cast<std::int64_t>(numbers[3])};
  }
  throw UsageError(
      concat("--rope-scaling is '", text,
             "', it must be none or linear:2.5 or llama3:8:1:4:8192, with numbers above "
             "0: a factor; then the turns below and above which a pair is slow and fast, "
             "the second more than the first; and in how many tokens"));
}

}  // namespace ladder
