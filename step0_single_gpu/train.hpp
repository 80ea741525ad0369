// Step 0: one device, one process, and the loop that all later steps keep.
#pragma once

#include "common/train/trainer.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder::step0 {

// Trains as `options` say. Throws UsageError in a world of several ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

// 4 bytes each for parameters and gradients, 8 for AdamW's two moments: 16 per element of the
// layout. Throws UsageError for several ranks.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Nothing, for a single rank has nobody to send to.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, and the token ids of a step; for an oracle also sums over its
// ranks.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step0_single_gpu",
      .role = RankRole::kAlone,
      .keeps = {"simulated ranks"},  // sums over them, which are no state of theirs
      .train = train,
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .tries = [](const TrainOptions&, int world_size) { return Tries(world_size == 1 ? 1 : 0); },
      .options = {.own = step_options<OracleOptions>()},
  };
}

}  // namespace ladder::step0
