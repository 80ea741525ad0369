#include "common/train/json.hpp"

#include "common/core/check.hpp"
#include "common/core/strict_json.hpp"

namespace ladder {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;  // JSON readers may hold it as a double

Json parse_json(std::string_view text, const std::string& origin, std::size_t most_members) {
  return parse_strict_json<Json>(text, origin, {.levels = 32, .members = most_members});
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

}  // namespace ladder
