// What a page asks of a live figure: settings with numbers, and texts, as in its permalink. What is
// left out has its default: "sync_every=20&delay=3". A wrong one is a UsageError.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json.hpp"

namespace ladder {

struct Setting {
  const char* name;
  double value, least, most, step;  // by default; a step below 1 allows fractions
};

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

inline double number_in(const std::string& text, const std::string& name, double least,
                        double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  check_usage(!text.empty() && *end == 0 && value >= least && value <= most, name, " is '", text,
              "': it must be a number from ", least, " to ", most);
  return value;
}

class Request {
 public:
  // `texts`: the names of what is no number, with their defaults.
  Request(const std::string& text, std::span<const Setting> settings,
          std::map<std::string, std::string> texts = {})
      : settings_(settings), texts_(std::move(texts)) {
    for (const Setting& setting : settings_) numbers_[setting.name] = setting.value;
    for (const std::string& part : split(text, '&')) {
      const std::size_t equals = std::min(part.find('='), part.size() - 1);
      set(part.substr(0, equals), part.substr(equals + 1));
    }
  }

  double number(const std::string& name) const { return numbers_.at(name); }
  std::int64_t count(const std::string& name) const { return std::llround(number(name)); }
  const std::string& text(const std::string& name) const { return texts_.at(name); }

  // For the page's controls: {"delay": {"value": 3, "least": 0, "most": 9, "step": 1}}.
  Json settings() const {
    Json json;
    for (const Setting& setting : settings_)
      json[setting.name] = {{"value", number(setting.name)},
                            {"least", setting.least},
                            {"most", setting.most},
                            {"step", setting.step}};
    return json;
  }

 private:
  void set(const std::string& name, const std::string& value) {
    if (texts_.contains(name)) {
      texts_[name] = value;
      return;
    }
    const auto found =
        std::ranges::find_if(settings_, [&](const Setting& each) { return name == each.name; });
    check_usage(found != settings_.end(), "there is no setting '", name, "'");
    const double number = number_in(value, name, found->least, found->most);
    check_usage(found->step < 1 || number == std::floor(number), name, " is '", value,
                "': it must be a whole number");
    numbers_[name] = number;
  }

  std::span<const Setting> settings_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> numbers_;
};

}  // namespace ladder
