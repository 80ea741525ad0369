// What is said of JSON that is wrong. In core, because code at every level parses JSON.
#pragma once

#include <string>
#include <string_view>

#include "common/core/check.hpp"

namespace ladder {

// At most as much of a text as fits on a few lines of a terminal.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t kMostBytes = 300;
  if (text.size() <= kMostBytes) return std::string(text);
  return concat(text.substr(0, kMostBytes), "… (", text.size(), " bytes)");
}

// The JSON library's error messages in our own words:
// "[json.exception.parse_error.101] parse error at line 1, column 2: …" becomes "line 1, column 2:
// …".
inline std::string json_problem(std::string_view message) {
  if (message.starts_with("[json.exception.")) message.remove_prefix(message.find("] ") + 2);
  constexpr std::string_view kParseError = "parse error at ";
  if (message.starts_with(kParseError)) message.remove_prefix(kParseError.size());
  return std::string(message);
}

}  // namespace ladder
