// A pipeline as the options describe it: a stage's layers, connected with the other stages, and
// what a run says about the whole: the cut, the batch, the schedule's name.
#pragma once

#include <string>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

// Builds the stage's layers over `flat`, with their initial values, and connects them with the
// other stages. Lifetime: `flat` and `stages` outlive the runner.
PipelineRunner stage_pipeline(const TrainOptions& options, const StagePlan& plan, FlatModel& flat,
                              Communicator& stages);

// What the run does, for its log: the layers of each stage, and how microbatches flow through them.
std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut);

}  // namespace ladder
