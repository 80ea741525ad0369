#include "common/data/jsonl_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {
namespace {

using nlohmann::json;

// Parses the object on a line; `place` is its file:line.
json parse_line(std::string_view line, const std::string& place) {
  std::set<std::string> names;
  const auto refuse_duplicates = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth != 1) return true;
    // Of two members with the same name, the library silently keeps the last.
    check(
        names.insert(parsed.get<std::string>()).second, place, ": member ",
        [&] { return parsed.dump(); }, " appears twice");
    return true;
  };
  try {
    json object = json::parse(line.begin(), line.end(), refuse_duplicates);
    check(object.is_object(), place, ": expected a JSON object, but this is of type ",
          object.type_name());
    return object;
  } catch (const json::exception& error) {
    std::string problem = json_problem(error.what());
    if (problem.starts_with("line 1, ")) problem.erase(0, 8);  // `place` already says which line
    throw CheckError(concat(place, ": not valid JSON: ", problem));
  }
}

}  // namespace

std::optional<std::string> JsonlObject::text(const std::string& name) const {
  const auto member = object_.find(name);
  if (member == object_.end()) return std::nullopt;
  check(member->is_string(), place_, ": \"", name, "\" must be a string, but is of type ",
        member->type_name());
  return member->get<std::string>();
}

void read_jsonl_objects(const std::string& path,
                        const std::function<void(const JsonlObject& object)>& visit) {
  const MappedFile file(path);
  std::string_view rest = file.bytes();
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = concat(path, ":", number);
    visit(JsonlObject(parse_line(line, place), place));
  }
}

}  // namespace ladder
