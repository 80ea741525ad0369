// JSON as Ladder reads and writes it: doubles come back to the same bits, what is not finite is
// null, a file with a key twice is refused.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ladder {

// Keys keep the order in which they are written. Looking one up, and adding one, goes through all of
// an object's keys.
using Json = nlohmann::ordered_json;

// Throws CheckError with `origin` (a file's name) and the place of the fault. Nothing that Ladder
// writes nests deeper than 32 levels or has more than 1,000 keys in one object; more is refused, so
// that no file keeps a reader busy for hours.
Json parse_json(const std::string& text, const std::string& origin);

// The member `name`, a count: a whole number from 0 to 2^53. Throws CheckError with `origin` and the
// value for anything else.
std::int64_t count_in(const Json& object, const char* name, const std::string& origin);

// As text, on one line or indented. Bytes that are not UTF-8 (a sample of a byte model may hold
// some) become U+FFFD.
std::string to_text(const Json& json, int indent = -1);

// For messages: no more of a text than fits on a few lines of a terminal.
std::string excerpt(std::string_view text);

}  // namespace ladder
