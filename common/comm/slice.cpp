#include "common/comm/slice.hpp"

#include <algorithm>

namespace ladder {

ElementRange slice_of(std::int64_t numel, int num_slices, int index) {
  const std::int64_t base = numel / num_slices;
  const std::int64_t longer = numel % num_slices;
  return {index * base + std::min<std::int64_t>(index, longer), base + (index < longer ? 1 : 0)};
}

}  // namespace ladder
