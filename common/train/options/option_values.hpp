// The values of options: from text, to text, which ones are allowed, and the message for one that
// is missing or wrong.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "common/core/check.hpp"

namespace ladder {

inline constexpr const char* kBoolType = "true|false";

// Stores the value in `member` and returns true if the whole text is a value of its type.
template <class Number>
bool parse_value(const std::string& text, Number& member) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  member = value;
  return true;
}
template <>
inline bool parse_value(const std::string& text, bool& member) {
  if (text != "true" && text != "false") return false;
  member = text == "true";
  return true;
}
template <>
inline bool parse_value(const std::string& text, std::string& member) {
  member = text;
  return true;
}

// The values that a number may have: from `least` to `most`, or between them.
template <class Number>
struct Range {
  Number least, most;
  bool is_above = false, is_below = false;  // the bound itself is excluded

  bool contains(Number value) const {  // no range contains NaN
    return (is_above ? value > least : value >= least) && (is_below ? value < most : value <= most);
  }
};

template <class Number>
void check_is_in(const Range<Number>& range, const char* name, Number value) {
  if constexpr (std::is_floating_point_v<Number>) {
    constexpr Number kLeast = std::numeric_limits<float>::min();
    check_usage(value == 0 || !(-kLeast < value && value < kLeast), name, " is ", value,
                ", which is 0 in fp32: give ", range.contains(0) ? "0, or " : "", "at least ",
                kLeast);
  }
  check_usage(range.contains(value), name, " is ", value, ", it must be ",
              range.is_above ? "above " : "at least ", range.least, " and ",
              range.is_below ? "below " : "at most ", range.most);
}

// Bounds are far beyond any use; and within them, what is computed from several options stays
// finite.
inline constexpr int kMostRanks = 1024;  // also stages and workers
inline constexpr std::int64_t kMostSteps = 1'000'000'000'000;
inline constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostTokenIds = std::int64_t{1} << 32;  // they have 4 bytes
inline constexpr double kMostFloat = 1e30;
inline constexpr Range<double> kPositive = {.least = 0, .most = kMostFloat, .is_above = true};
inline constexpr Range<double> kNotNegative = {0, kMostFloat};
inline constexpr Range<double> kShare = {0, 1};
inline constexpr Range<double> kDecayRate = {.least = 0, .most = 1, .is_below = true};
inline constexpr Range<std::int64_t> kCount = {0, kMostSteps};
inline constexpr Range<std::int64_t> kPositiveCount = {1, kMostSteps};
inline constexpr Range<std::int64_t> kRows = {1, kMostRows};

template <class Value>
std::string default_text(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) return value ? "true" : "false";
  return concat(value);
}

// What --help shows as the type of a value.
template <class Value>
std::string type_name() {
  if constexpr (std::is_same_v<Value, bool>) return kBoolType;
  if constexpr (std::is_same_v<Value, std::string>) return "TEXT";
  if constexpr (std::is_floating_point_v<Value>) return "FLOAT";
  return std::is_signed_v<Value> ? "INT" : "UINT";
}

}  // namespace ladder
