// What theory says of step 8.
#pragma once

#include "common/comm/mesh_shape.hpp"
#include "common/train/theory.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder::step8 {

// The places of so many ranks. Throws UsageError as num_stages_of() does.
inline MeshShape mesh_of(const TrainOptions& options, int world_size) {
  return mesh_shape(world_size, num_stages_of(options, world_size));
}

// 16 bytes per parameter of the rank's own stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// The buckets of the stage's own gradients among its replicas, activations and their gradients to
// its neighbors, a tied embedding's gradient, the block sums of two norms, and three scalars.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of all live microbatches of the stage, messages that have come or wait to go, and
// what other ranks send of the buckets in flight, maybe all. Nothing if each step decides how many
// microbatches it has.
std::optional<std::int64_t> working_bytes(const TrainOptions& options, int world_size, int rank);

// Several numbers of stages, each with several schedules.
Tries tries(const TrainOptions& options, int world_size);

// Four microbatches, so that stages have something to do at the same time.
inline TrainOptions default_options() {
  TrainOptions options = {.own = step_options<BucketOptions, PipelineOptions>()};
  options.data.num_microbatches = 4;
  return options;
}

// Optimizer and norms are about the rank's own stage.
OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

// What --show-schedule shows, for a backward that takes twice as long as a forward: a drawing in text,
// or a trace. Throws UsageError if there are too many forwards to draw.
std::string show_schedule(const TrainOptions& options, int world_size, bool is_trace);

// {"chunks": [[0, 1], [2, 3]], "stages": [["F0.0", "F0.1", …], …]}: the layers of each chunk, and what
// each stage computes in one flush, as kind (F, B, or I for a dgrad and W for a wgrad), chunk and
// microbatch. Null if the pipeline's flushes have no fixed size.
Json schedule_json(const TrainOptions& options, int world_size);

// The idle time of all stages per time that they compute, for such a backward and messages that
// take no time.
double bubble(const TrainOptions& options, int world_size);

inline Theory theory() {
  return {
      .step = "step8_pipeline_ga",
      .role = RankRole::kStage,
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .optimizer_work = optimizer_work,
      .mesh = mesh_of,
      .schedule = schedule_json,
      .bubble = bubble,
      .tries = tries,
      .picture =
          Theory::Picture{"--show-schedule",
                          "draw what each stage computes when, or write it into FILE.json, which "
                          "./ladder trace FILE.json --svg OUT draws, and exit",
                          show_schedule},
      .options = default_options(),
  };
}

}  // namespace ladder::step8
