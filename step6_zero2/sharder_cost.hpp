// What a GradientSharder costs, as formulas: for the cost cards of the steps that use one.
#pragma once

#include <cstdint>

#include "common/comm/traffic.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder {

// The most that full gradients take at once: one unit that backward fills, and the one before it on
// its way. With several microbatches the embedding of one is on its way while the head of the next
// fills.
std::int64_t gradient_bytes_in_flight(const FlatLayout& layout, std::int64_t num_microbatches);

// One reduce_scatter per unit: what one backward sends.
Traffic sharder_traffic(const FlatLayout& layout, int world_size, int rank);

}  // namespace ladder
