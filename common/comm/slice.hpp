// A tensor's elements in slices, one for each rank.
#pragma once

#include <cstdint>

namespace ladder {

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t numel = 0;
};

// Slice `index` of `numel` elements cut into `num_slices` slices, of which the first
// numel % num_slices are one element longer. With fewer elements than slices the last are empty.
ElementRange slice_of(std::int64_t numel, int num_slices, int index);

}  // namespace ladder
