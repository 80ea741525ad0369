// What a GradientSharder costs, as formulas for the cost cards of the steps that use one.
#pragma once

#include <cstdint>

#include "common/comm/traffic.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder {

// The largest number of bytes of full gradients at any moment: the unit that backward is filling
// and the one before it, in flight. With several microbatches the embedding of one is in flight
// while the head of the next is being filled.
std::int64_t gradient_bytes_in_flight(const FlatLayout& layout, std::int64_t num_microbatches);

// What one backward sends: one reduce_scatter per unit.
Traffic sharder_traffic(const FlatLayout& layout, int world_size, int rank);

}  // namespace ladder
