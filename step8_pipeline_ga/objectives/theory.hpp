// What theory says of the chapter of step 8 about objectives.
#pragma once

#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/theory.hpp"

namespace ladder::objectives {

// Those of step 8, and a second model of the same stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// That of step 8, once more the activations of a forward, through the second model, the sums of the
// metrics, and the scores that are balanced over a whole step.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

inline Theory theory() {
  Theory theory = {.step = "objectives",
                   .role = RankRole::kStage,
                   .num_models = 2,
                   .keeps = {"reference log-probabilities"},
                   .state_bytes = state_bytes,
                   .sends = sends,
                   .mesh = step8::mesh_of,
                   .bubble = step8::bubble,
                   .tries = never};
  theory.options.own = step_options<BucketOptions, PipelineOptions, ObjectiveOptions>();
  theory.options.data.num_microbatches = 4;  // as in step 8
  return theory;
}

}  // namespace ladder::objectives
