// Step 8: the model is cut into stages, and microbatches flow through them.
#pragma once

#include "common/train/trainer.hpp"
#include "step8_pipeline_ga/runner/describe_pipeline.hpp"

namespace ladder::step8 {

// Collective: every rank of the world calls it with the same options. If one rank throws, the
//             others wait until the caller ends them, as run_main does. Throws UsageError naming
//             --pipeline-stages if the stages do not divide the ranks, or there are fewer
//             microbatches or blocks than stages.
TrainReport train(const TrainOptions& options, World& world);

// 16 bytes per parameter of the rank's own stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// The buckets of the stage's own gradients among its replicas, activations and their gradients to
// its neighbors, a tied embedding's gradient, the block sums of two norms, and three scalars.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

// The messages to the neighboring stages: their number, and their bytes.
Traffic microbatch_traffic(const TrainOptions& options, int world_size, int rank);
Traffic row_traffic(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step8_pipeline_ga",
      .train = train,
      .state_bytes = state_bytes,
      .step_traffic = step_traffic,
      .microbatch_traffic = microbatch_traffic,
      .row_traffic = row_traffic,
      .draw_schedule = draw_schedule,
      .groups = {OptionGroup::kBuckets, OptionGroup::kPipeline},
  };
}

}  // namespace ladder::step8
