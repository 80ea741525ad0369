#include "common/data/strict_json.hpp"

#include <unordered_set>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"

namespace ladder {

using nlohmann::json;

json parse_strict_json(std::string_view text, const std::string& place) {
  constexpr int kMostLevels = 100;
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto refuse = [&](int depth, json::parse_event_t event, json& parsed) {
    check(depth <= kMostLevels, place, ": nests deeper than ", kMostLevels, " levels");
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key)
      check(
          open_objects.back().insert(parsed.get<std::string>()).second, place, ": member ",
          [&] { return parsed.dump(); }, " appears twice");
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), refuse);
  } catch (const json::exception& error) {
    throw CheckError(concat(place, ": not valid JSON: ", json_problem(error.what())));
  }
}

}  // namespace ladder
