#include "step7_zero3/peak.hpp"

#include <algorithm>

namespace ladder {

std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied) {
  const auto last = static_cast<std::int64_t>(layout.units.size()) - 1;
  const auto numel = [&](std::int64_t first, std::int64_t end) {  // of units first … end
    std::int64_t sum = 0;
    for (std::int64_t u = first; u <= end; ++u)
      sum += layout.units[static_cast<std::size_t>(u)].numel;
    return sum;
  };
  const std::int64_t embedding = is_tied ? numel(0, 0) : 0;
  std::int64_t most = 0;
  for (std::int64_t u = 0; u <= last; ++u) {
    const std::int64_t kept = u > 0 ? embedding : 0;
    most = std::max(most, kept + numel(u, std::min(u + prefetch, last)));  // forward
  }
  for (std::int64_t u = last; u >= 1; --u) {
    const std::int64_t kept = u == last ? embedding : 0;
    most = std::max(most, kept + numel(std::max<std::int64_t>(u - prefetch, 1), u));  // backward
  }
  return most;
}

}  // namespace ladder
