// Step 1: data parallelism by libtorch's own Reducer, the reference that later steps must equal.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step1 {

// Collective: every rank of the world calls it with the same options. Throws what any rank finds
// wrong; the others then wait until the caller ends them (run_main does).
TrainReport train(const TrainOptions& options, World& world);

// A replica, and the Reducer's buckets: 4 bytes more per parameter, without padding.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per bucket of the Reducer, and one of two doubles.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step1_ddp_reference",
      .train = train,
      .state_bytes = state_bytes,
      .step_traffic = step_traffic,
      .groups = {OptionGroup::kReference},
  };
}

}  // namespace ladder::step1
