// What theory says of step 7.
#pragma once

#include "common/train/options/option_table.hpp"
#include "common/train/theory.hpp"
#include "step5_zero1/shard_options.hpp"

namespace ladder {

struct PrefetchOptions {
  int num_units = 1;  // --prefetch: units whose parameters are gathered ahead of the one in use

  void declare(OptionTable& table) {
    table.heading("Prefetch");
    table
        .number("--prefetch", num_units, {0, 2},
                "units whose parameters are gathered ahead of the one in use: 0, 1 or 2")
        .changes_no_bits();
  }
};

}  // namespace ladder

namespace ladder::step7 {

// 1/N of everything.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Within a step also the parameters of the units that are whole at once, and the full gradients of two
// neighboring units.
StateBytes transient_bytes(const TrainOptions& options, int world_size, int rank);

// Per unit and microbatch, one reduce_scatter and one all_gather (two for a block); two all_gathers
// of block sums, for two norms; one all-reduce of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, and what other ranks send of a unit; or one unit for a save.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

// Optimizer and norms are about the rank's slices.
OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step7_zero3",
      .sums_each_microbatch = true,
      .starts_by_broadcast = false,
      .state_bytes = state_bytes,
      .sends = sends,
      .transient_bytes = transient_bytes,
      .working_bytes = working_bytes,
      .optimizer_work = optimizer_work,
      .groups = describe_copies,
      .tries = tries_of_cuts,
      .options = {.own = step_options<ShardOptions, PrefetchOptions>()},
  };
}

}  // namespace ladder::step7
