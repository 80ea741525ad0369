// A stage of the pipeline as the options describe it: its layers, connected with the other stages.
#pragma once

#include "common/comm/communicator.hpp"
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

}  // namespace ladder
