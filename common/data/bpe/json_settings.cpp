#include "common/data/bpe/json_settings.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// As much of a value as fits in a message.
std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kMostBytes = 200;
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMostBytes ? text : text.substr(0, kMostBytes) + " …";
}

}  // namespace

JsonSettings::JsonSettings(const nlohmann::json& object, std::string file, std::string where)
    : object_(object),
      file_(std::move(file)),
      where_(std::move(where)),
      place_(where_.empty() ? file_ : file_ + ": " + where_) {
  check(
      object_.is_object(), place_, " is ", [&] { return shown(object_); }, ", not an object");
}

const nlohmann::json& JsonSettings::member(const char* name) const {
  const auto found = object_.find(name);
  check(found != object_.end(), place_, ": \"", name, "\" is missing");
  return *found;
}

JsonSettings JsonSettings::object(const char* name) const {
  return {member(name), file_, where_.empty() ? name : where_ + "." + name};
}

std::string JsonSettings::text(const char* name) const {
  const nlohmann::json& value = member(name);
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

void JsonSettings::only(const char* name, std::initializer_list<nlohmann::json> supported) const {
  const auto found = object_.find(name);
  const nlohmann::json value = found == object_.end() ? nlohmann::json(nullptr) : *found;
  if (std::ranges::find(supported, value) != supported.end()) return;
  std::string list;
  for (const nlohmann::json& one : supported) list += (list.empty() ? "" : " or ") + one.dump();
  throw CheckError(
      concat(place_, ": \"", name, "\" is ", shown(value), "; only ", list, " is supported"));
}

}  // namespace ladder
