#include "common/core/amounts.hpp"

#include <cstdio>

#include "common/core/check.hpp"

namespace ladder {

std::string format_bytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  int unit = 0;
  while (amount >= 1024.0 && unit < 4) {
    amount /= 1024.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return text;
}

std::string count_of(std::int64_t count, const std::string& noun) {
  return concat(count, " ", noun, count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

}  // namespace ladder
