#include "common/train/json.hpp"

#include <set>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"

namespace ladder {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;  // JSON readers may hold it as a double
constexpr std::size_t kExcerptBytes = 300;

}  // namespace

Json parse_json(const std::string& text, const std::string& origin, std::size_t most_members) {
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](int depth, Json::parse_event_t event, Json& value) {
    check(depth <= kMaxDepth, origin, ": nests deeper than ", kMaxDepth, " levels");
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = value.get<std::string>();
      std::set<std::string>& keys = open_objects.back();
      check(keys.insert(key).second, origin, ": the key \"", excerpt(key), "\" occurs twice");
      check(keys.size() <= most_members, origin, ": an object has more than ", most_members,
            " keys");
    }
    return true;
  };
  try {
    return Json::parse(text, refuse);
  } catch (const Json::exception& error) {
    throw CheckError(concat(origin, ": not valid JSON: ", excerpt(json_problem(error.what()))));
  }
}

std::int64_t count_in(const Json& object, const char* name, const std::string& origin) {
  check(object.is_object() && object.contains(name), origin, ": damaged: \"", name,
        "\" is missing");
  const Json& value = object[name];
  const auto in_range = [](std::int64_t number) { return number >= 0 && number <= kMaxCount; };
  const bool is_count = value.is_number_unsigned()
                            ? value.get<std::uint64_t>() <= std::uint64_t{kMaxCount}
                            : value.is_number_integer() && in_range(value.get<std::int64_t>());
  check(is_count, origin, ": damaged: \"", name, "\" is ", excerpt(to_text(value)),
        ", it must be a whole number from 0 to ", kMaxCount);
  return value.get<std::int64_t>();
}

std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string excerpt(std::string_view text) {
  if (text.size() <= kExcerptBytes) return std::string(text);
  return concat(text.substr(0, kExcerptBytes), "… (", text.size(), " bytes)");
}

}  // namespace ladder
