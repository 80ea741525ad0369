// What theory says of step 0.
#pragma once

#include "common/train/theory.hpp"
#include "step0_single_gpu/oracle_options.hpp"

namespace ladder::step0 {

// 4 bytes each for parameters and gradients, 8 for AdamW's two moments: 16 per element of the
// layout. Throws UsageError for several ranks.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Nothing, for a single rank has nobody to send to.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, and the token ids of a step; for an oracle also sums over its
// ranks.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step0_single_gpu",
      .role = RankRole::kAlone,
      .keeps = {"simulated ranks"},  // sums over them, which are no state of theirs
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .tries = [](const TrainOptions&, int world_size) { return Tries(world_size == 1 ? 1 : 0); },
      .options = {.own = step_options<OracleOptions>()},
  };
}

}  // namespace ladder::step0
