#include "common/model/config_reader.hpp"

#include <algorithm>
#include <limits>

#include "common/core/check.hpp"
#include "common/model/model_options.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMostExtent = std::numeric_limits<std::int32_t>::max();
constexpr double kMostPositive = 1e30;  // as of an option

SortedJson set_in(const std::string& text, const std::string& path) {
  const SortedJson all = parse_sorted_json(text, path);
  check(all.is_object(), path, ": is not an object of settings");
  SortedJson set = SortedJson::object();
  for (const auto& [name, value] : all.items())
    if (!value.is_null()) set[name] = value;
  return set;
}

}  // namespace

ConfigReader::ConfigReader(const std::string& text, const std::string& path)
    : path_(path), settings_(set_in(text, path)), reader_(settings_, path, "") {}

std::int64_t ConfigReader::extent(const char* name) const {
  const std::int64_t value = count_in(settings_, name, path_);
  check(value >= 1 && value <= kMostExtent, path_, ": \"", name, "\" is ", value,
        ", it must be from 1 to ", kMostExtent);
  return value;
}

bool ConfigReader::is_one_not_zero(std::initializer_list<const char*> names) const {
  return std::ranges::any_of(
      names, [&](const char* name) { return has(name) && settings_.at(name) != 0; });
}

double ConfigReader::rope_theta() const {
  double theta = positive("rope_theta", ModelOptions().rope_theta);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!has(name)) continue;
    const SortedJson& rope = settings_.at(name);
    const JsonSettings settings = reader_.object(name);
    for (const char* type : {"rope_type", "type"}) settings.only(type, {nullptr, "default"});
    settings.only("partial_rotary_factor", {nullptr, 1});
    if (!rope.contains("rope_theta") || rope["rope_theta"].is_null()) continue;
    const double nested = positive_in(rope, "rope_theta");
    check(!has("rope_theta") || nested == theta, path_, ": \"rope_theta\" is ", theta, ", but ",
          nested, " in \"", name, "\"");
    theta = nested;
  }
  return theta;
}

double ConfigReader::positive_in(const SortedJson& object, const char* name) const {
  const SortedJson& value = object.at(name);
  const bool is_in_range = value.is_number() && value > 0 && value <= kMostPositive;
  check(is_in_range, path_, ": \"", name, "\" is ", excerpt(to_text(value)),
        ", it must be a number above 0 and at most ", kMostPositive);
  return value.get<double>();
}

}  // namespace ladder
