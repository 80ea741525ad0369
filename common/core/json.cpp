#include "common/core/json.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;  // JSON readers may hold it as a double

template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& origin, int most_levels,
              std::size_t most_members) {
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto refuse = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& value) {
    check(depth <= most_levels, origin, ": nests deeper than ", most_levels, " levels");
    if (event == AnyJson::parse_event_t::object_start) open_objects.emplace_back();
    if (event == AnyJson::parse_event_t::object_end) open_objects.pop_back();
    if (event == AnyJson::parse_event_t::key) {
      const auto key = value.template get<std::string>();
      std::unordered_set<std::string>& keys = open_objects.back();
      check(
          keys.insert(key).second, origin, ": the key \"", [&] { return excerpt(key); },
          "\" occurs twice");
      check(keys.size() <= most_members, origin, ": an object has more than ", most_members,
            " keys");
    }
    return true;
  };
  try {
    return AnyJson::parse(text.begin(), text.end(), refuse);
  } catch (const typename AnyJson::exception& error) {
    throw CheckError(concat(origin, ": not valid JSON: ", excerpt(json_problem(error.what()))));
  }
}

std::string shown(const SortedJson& value) {
  return excerpt(to_text(value));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, std::size_t most_members) {
  return parse<Json>(text, origin, /*most_levels=*/32, most_members);
}

SortedJson parse_sorted_json(std::string_view text, const std::string& origin) {
  return parse<SortedJson>(text, origin, /*most_levels=*/100,
                           std::numeric_limits<std::size_t>::max());
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
  constexpr std::size_t kMostBytes = 300;
  if (text.size() <= kMostBytes) return std::string(text);
  return concat(text.substr(0, kMostBytes), "… (", text.size(), " bytes)");
}

std::string json_problem(std::string_view message) {
  if (message.starts_with("[json.exception.")) message.remove_prefix(message.find("] ") + 2);
  constexpr std::string_view kParseError = "parse error at ";
  if (message.starts_with(kParseError)) message.remove_prefix(kParseError.size());
  return std::string(message);
}

JsonSettings::JsonSettings(const SortedJson& object, std::string file, std::string where)
    : object_(object),
      file_(std::move(file)),
      where_(std::move(where)),
      place_(where_.empty() ? file_ : file_ + ": " + where_) {
  check(
      object_.is_object(), place_, " is ", [&] { return shown(object_); }, ", not an object");
}

bool JsonSettings::has(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

const SortedJson& JsonSettings::member(const char* name) const {
  const auto found = object_.find(name);
  check(found != object_.end(), place_, ": \"", name, "\" is missing");
  return *found;
}

JsonSettings JsonSettings::object(const char* name) const {
  return {member(name), file_, where_.empty() ? name : where_ + "." + name};
}

std::vector<JsonSettings> JsonSettings::objects(const char* name) const {
  const SortedJson& list = member(name);
  check(list.is_array(), place_, ": \"", name, "\" is not a list");
  std::vector<JsonSettings> objects;
  for (const SortedJson& each : list)
    objects.emplace_back(each, file_, concat(where_, ".", name, "[", objects.size(), "]"));
  return objects;
}

std::string JsonSettings::text(const char* name) const {
  const SortedJson& value = member(name);
  check(
      value.is_string(), place_, ": \"", name, "\" is ", [&] { return shown(value); },
      ", not a string");
  return value.get<std::string>();
}

bool JsonSettings::flag(const char* name, bool otherwise) const {
  const auto found = object_.find(name);
  if (found == object_.end() || found->is_null()) return otherwise;
  check(
      found->is_boolean(), place_, ": \"", name, "\" is ", [&] { return shown(*found); },
      ", it must be true or false");
  return found->get<bool>();
}

void JsonSettings::only(const char* name, std::initializer_list<SortedJson> supported) const {
  const auto found = object_.find(name);
  const SortedJson value = found == object_.end() ? SortedJson(nullptr) : *found;
  if (std::ranges::find(supported, value) != supported.end()) return;
  std::string list;
  for (const SortedJson& one : supported) list += (list.empty() ? "" : " or ") + one.dump();
  throw CheckError(
      concat(place_, ": \"", name, "\" is ", shown(value), "; only ", list, " is supported"));
}

}  // namespace ladder
