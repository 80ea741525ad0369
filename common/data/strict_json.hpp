// JSON of which no two readers make different things: of two members with the same name, most
// silently keep the last.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ladder {

// Throws CheckError, which begins with `place`, if the text is malformed, has a member twice in the
// same object, or nests deeper than 100 levels.
nlohmann::json parse_strict_json(std::string_view text, const std::string& place);

}  // namespace ladder
