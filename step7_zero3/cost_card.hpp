// What a step with sharded parameters holds.
#pragma once

#include <cstdint>

#include "common/optim/flat_layout.hpp"

namespace ladder {

// The largest number of elements, padding included, in units that are
// whole at the same time, on top of the shards: in forward, one unit, those gathered ahead of it,
// and a tied embedding. Backward holds equally many neighbors, in the opposite direction, and never
// more elements.
std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied);

}  // namespace ladder
