// The validation loss of a pipeline.
#pragma once

#include "common/comm/mesh.hpp"
#include "step8_pipeline_ga/objectives/step_objective.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder {

// The validation loss: each replica runs every N-th microbatch through its pipeline. Equal to the
// loss of one process to the bit. Collective over the world. What the objective has measured on the
// way is left for its take_metrics().
double evaluate(PipelineRunner& pipeline, const StepObjective& objective,
                const Microbatches& batches, const Mesh& mesh);

}  // namespace ladder
