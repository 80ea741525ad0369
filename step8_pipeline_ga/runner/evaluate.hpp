// The validation loss of a pipeline.
#pragma once

#include <functional>

#include "common/comm/mesh.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder {

// The validation loss: each replica runs every N-th microbatch through its pipeline. Equal to the
// loss of one process to the bit. `prepare`, if there is one, first gets a replica's own batches,
// to fill in what a second model says about them. Long ones run in parts: kStoppedLoss if a rank is
// asked to stop before the next. Collective over the world.
double evaluate(PipelineRunner& pipeline, const Objective& objective, const Microbatches& batches,
                const Mesh& mesh, const std::function<void(Microbatches& own)>& prepare = {});

}  // namespace ladder
