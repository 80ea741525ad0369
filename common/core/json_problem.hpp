// The JSON library's error messages in our own words. In core, because code at every level parses
// JSON.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

// "[json.exception.parse_error.101] parse error at line 1, column 2: …" becomes "line 1, column 2:
// …".
inline std::string json_problem(std::string_view message) {
  if (message.starts_with("[json.exception.")) message.remove_prefix(message.find("] ") + 2);
  constexpr std::string_view kParseError = "parse error at ";
  if (message.starts_with(kParseError)) message.remove_prefix(kParseError.size());
  return std::string(message);
}

}  // namespace ladder
