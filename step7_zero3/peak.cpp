#include "step7_zero3/peak.hpp"

#include <algorithm>

namespace ladder {

std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied) {
  const auto num_units = static_cast<std::int64_t>(layout.units.size());
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < num_units; ++first) {
    const std::int64_t end = std::min(first + prefetch + 1, num_units);
    std::int64_t whole = is_tied && first > 0 ? layout.units[0].numel : 0;
    for (std::int64_t u = first; u < end; ++u)
      whole += layout.units[static_cast<std::size_t>(u)].numel;
    most = std::max(most, whole);
  }
  return most;
}

}  // namespace ladder
