// The values of options: from text, to text, and the message for one that is missing or wrong.
#pragma once

#include <charconv>
#include <string>
#include <type_traits>

#include "common/core/check.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

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
  check_usage(range.contains(value), name, " is ", value, ", it must be ",
              range.is_above ? "above " : "at least ", range.least, " and ",
              range.is_below ? "below " : "at most ", range.most);
}

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

// What the option expects, for messages: "a whole number, for example --steps 200".
std::string expected_value(const CLI::Option& option);

// Throws UsageError if the text is not a value, as in `--steps ""`, or is the name of an option: in
// `--out --steps 3` a value was forgotten, and --steps is not a folder. A text option may be empty.
void check_is_value(const CLI::App& app, const CLI::Option& option, const std::string& text);

}  // namespace ladder
