// Step 6: ZeRO-2, gradients and the optimizer's state in slices.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step6 {

// Collective: every rank of the world calls it with the same options. If one rank throws, the
// others wait until the caller ends them, as run_main does.
TrainReport train(const TrainOptions& options, World& world);

// A replica's parameters, 1/N of the gradients and of the optimizer's state.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// On top of these: the full gradients of the two neighbouring units that are largest together.
PeakBytes peak_bytes(const TrainOptions& options, int world_size, int rank);

// Of each unit one reduce_scatter per microbatch and one all_gather; one all_gather of the block
// sums of the norm; one all-reduce of one double, one of two.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);
// Of these, what each microbatch sends.
Traffic microbatch_traffic(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step6_zero2",
      .train = train,
      .state_bytes = state_bytes,
      .step_traffic = step_traffic,
      .microbatch_traffic = microbatch_traffic,
      .peak_bytes = peak_bytes,
  };
}

}  // namespace ladder::step6
