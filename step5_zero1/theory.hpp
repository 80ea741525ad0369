// What theory says of step 5.
#pragma once

#include "common/train/theory.hpp"
#include "step5_zero1/shard_options.hpp"

namespace ladder::step5 {

// All parameters and gradients, and 1/N of the optimizer state.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One reduce_scatter and one all_gather per unit; one all_gather of the norm's block sums; one
// all-reduce of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch; later, what other ranks send of all units, or one unit for a save.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

// The optimizer and the norm of the gradients are about the rank's slices, the norm of the parameters
// about all.
OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step5_zero1",
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .optimizer_work = optimizer_work,
      .groups = describe_copies,
      .tries = tries_of_cuts,
      .options = {.own = step_options<ShardOptions>()},
  };
}

}  // namespace ladder::step5
