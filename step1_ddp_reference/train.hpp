// Step 1: data parallelism by libtorch's own Reducer, the reference that later steps must equal.
#pragma once

#include "common/comm/world.hpp"
#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder::step1 {

// Collective: every rank of the world calls it with the same options. Throws what any rank finds
// wrong; the others then wait until the caller ends them (run_main does).
TrainReport train(const TrainOptions& options, World& world);

// A replica, and the Reducer's buckets: 4 bytes more per parameter, without padding.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per bucket of the Reducer, and one of two doubles.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

}  // namespace ladder::step1
