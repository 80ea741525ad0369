// Step 8: the model is cut into stages, and microbatches flow through them.
#pragma once

#include "common/train/trainer.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"
#include "step8_pipeline_ga/theory.hpp"

namespace ladder::step8 {

// Trains for what make_objective makes. Collective. Throws UsageError naming --pipeline-stages if the
// stages do not divide the ranks, or there are fewer microbatches or blocks than stages.
TrainReport train(const TrainOptions& options, Communicator& comm,
                  const MakeObjective& make_objective);

inline Trainer trainer() {
  return {theory(), [](const TrainOptions& options, Communicator& comm) {
            return train(options, comm, next_token);
          }};
}

}  // namespace ladder::step8
