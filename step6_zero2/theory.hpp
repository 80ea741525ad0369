// What theory says of step 6.
#pragma once

#include "common/train/theory.hpp"
#include "step5_zero1/shard_options.hpp"

namespace ladder::step6 {

// All parameters, and 1/N of the gradients and of the optimizer state.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Within a step also the full gradients of the two neighboring units that are largest together.
StateBytes transient_bytes(const TrainOptions& options, int world_size, int rank);

// Per unit and optimizer step, one reduce_scatter per microbatch and one all_gather; one all_gather
// of the norm's block sums; one all-reduce of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, and what other ranks send of a unit; or one unit for a save.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

// The optimizer and the norm of the gradients are about the rank's slices, the norm of the parameters
// about all.
OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step6_zero2",
      .sums_each_microbatch = true,
      .state_bytes = state_bytes,
      .sends = sends,
      .transient_bytes = transient_bytes,
      .working_bytes = working_bytes,
      .optimizer_work = optimizer_work,
      .groups = describe_copies,
      .tries = tries_of_cuts,
      .options = {.own = step_options<ShardOptions>()},
  };
}

}  // namespace ladder::step6
