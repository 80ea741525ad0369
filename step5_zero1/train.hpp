// Step 5: ZeRO-1, the optimizer's state in slices.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step5 {

// Collective: every rank of the world calls it with the same options. If one rank throws, the
// others wait until the caller ends them, as run_main does.
TrainReport train(const TrainOptions& options, World& world);

// A replica's parameters and gradients, and 1/N of the optimizer's state.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Of each unit one reduce_scatter and one all_gather; one all_gather of the block sums of the norm;
// one all-reduce of one double, one of two.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step5_zero1",
      .train = train,
      .state_bytes = state_bytes,
      .step_traffic = step_traffic,
  };
}

}  // namespace ladder::step5
