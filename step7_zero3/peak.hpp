// How much of the model is whole at once: a formula, for the cost card.
#pragma once

#include <cstdint>

#include "common/optim/flat_layout.hpp"

namespace ladder {

// The most elements, padding included, of units that are whole at the same time, on top of the
// shards: in forward a unit, those gathered ahead of it, and a tied embedding. Backward goes through
// neighbours of the same number, the other way round, and never holds more.
std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied);

}  // namespace ladder
