// A pipeline as the options describe it: a stage's layers, connected with the other stages, and
// what a run says about the whole: the cut, the batch, the schedule as a picture, its bubble.
#pragma once

#include <string>

#include "common/comm/communicator.hpp"
#include "common/core/json.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

// The schedule that the options name, for any number of microbatches.
Planner planner_of(const TrainOptions& options, int num_stages);

// Builds the stage's layers over `flat`, with their initial values, and connects them with the
// other stages. Lifetime: `flat` and `stages` outlive the runner.
PipelineRunner stage_pipeline(const TrainOptions& options, const StagePlan& plan, FlatModel& flat,
                              Communicator& stages);

// What the run does, for its log: the layers of each stage, and how microbatches flow through them.
std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut);

// The schedule as --show-schedule draws it, for a backward that takes twice as long as a forward:
// as text, or as an SVG file. Throws UsageError if there are too many forwards to draw.
std::string draw_schedule(const TrainOptions& options, int world_size, bool is_svg);

// {"chunks": [[0, 1], [2, 3]], "stages": [["F0.0", "F0.1", …], …]}: the layers of each chunk, and what
// each stage computes in one flush, as kind (F, B, or the halves I and W), chunk and microbatch.
// Null if the pipeline's flushes have no fixed size.
Json schedule_json(const TrainOptions& options, int world_size);

// The idle time of all stages per time that they compute, for such a backward and messages that
// take no time.
double bubble(const TrainOptions& options, int world_size);

}  // namespace ladder
