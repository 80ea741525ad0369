// What theory says of the chapter of step 8 about tensor parallelism.
#pragma once

#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "step8_pipeline_ga/theory.hpp"

namespace ladder::tensor_parallel {

// 16 bytes per parameter of the rank's own parts, and of what all parts use.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// What step 8 sends, and the sums of each layer's parts.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

std::optional<std::int64_t> working_bytes(const TrainOptions& options, int world_size, int rank);

// Several numbers of tensor ranks, up to those of a machine.
Tries tries(const TrainOptions& options, int world_size);

// Those of step 8, for as many stages.
Json schedule_json(const TrainOptions& options, int world_size);
double bubble(const TrainOptions& options, int world_size);

OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

// One stage, unless more are asked for.
inline TrainOptions default_options() {
  TrainOptions options = {.own = step_options<BucketOptions, PipelineOptions, TensorOptions>()};
  options.set<PipelineOptions>().num_stages = 1;
  return options;
}

inline Theory theory() {
  return {
      .step = "tensor_parallel",
      .role = RankRole::kStage,
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .optimizer_work = optimizer_work,
      .mesh = tensor_mesh_of,
      .schedule = schedule_json,
      .bubble = bubble,
      .tries = tries,
      .options = default_options(),
  };
}

}  // namespace ladder::tensor_parallel
