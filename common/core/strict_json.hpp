// JSON of which no two readers make different things: of two members with the same name, most
// silently keep the last.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"

namespace ladder {

// What no file that is read may exceed, so that none keeps a reader busy for hours.
struct JsonLimits {
  int levels = 100;
  std::size_t members = std::numeric_limits<std::size_t>::max();  // of one object
};

// `Json`: nlohmann::json or nlohmann::ordered_json. Throws CheckError, which begins with `origin`,
// if the text is malformed, has a member twice in the same object, or exceeds the limits.
template <class Json>
Json parse_strict_json(std::string_view text, const std::string& origin, JsonLimits limits = {}) {
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto refuse = [&](int depth, typename Json::parse_event_t event, Json& value) {
    check(depth <= limits.levels, origin, ": nests deeper than ", limits.levels, " levels");
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = value.template get<std::string>();
      std::unordered_set<std::string>& keys = open_objects.back();
      check(
          keys.insert(key).second, origin, ": the key \"", [&] { return excerpt(key); },
          "\" occurs twice");
      check(keys.size() <= limits.members, origin, ": an object has more than ", limits.members,
            " keys");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), refuse);
  } catch (const typename Json::exception& error) {
    throw CheckError(concat(origin, ": not valid JSON: ", excerpt(json_problem(error.what()))));
  }
}

}  // namespace ladder
