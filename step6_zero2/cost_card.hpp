// What a step with sharded gradients holds and sends, for the cost cards of steps 6 and 7.
#pragma once

#include <cstdint>

#include "common/optim/flat_layout.hpp"
#include "common/train/sends.hpp"

namespace ladder {

// The largest number of bytes of full gradients at any moment, those of the
// unit that backward is filling and of the one before it, in flight. With several microbatches the
// embedding of one is in flight while the head of the next is being filled.
std::int64_t gradient_bytes_in_flight(const FlatLayout& layout, std::int64_t num_microbatches);

struct Sharding;  // step 5's cost_card.hpp

// What each backward sends: the reductions of all units.
void add_gradient_sends(SendPlan& plan, const Sharding& sharding);

}  // namespace ladder
