// --objective dpo in a pipeline: the frozen reference runs through the same stages as the model, or
// its log-probabilities are read from a cache.
#pragma once

#include "step8_pipeline_ga/objectives/step_objective.hpp"

namespace ladder {

StepObjective dpo_objective(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                            const BatchStream& batches);

}  // namespace ladder
