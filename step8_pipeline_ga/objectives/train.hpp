// The chapter of step 8 about objectives: its pipeline learns from the next token, from pairs of
// answers, or from itself.
#pragma once

#include "common/train/trainer.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/runner/describe_pipeline.hpp"

namespace ladder::objectives {

// Collective: every rank of the world calls it with the same options. If one rank throws, the
//             others wait until the caller ends them, as run_main does. Throws UsageError as step 8
//             does.
TrainReport train(const TrainOptions& options, World& world);

// Those of step 8, and a second model of the same stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// That of step 8, once more the activations of a forward, through the second model, the sums of the
// metrics, and the scores that are balanced over a whole step.
Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank);

inline Trainer trainer() {
  Trainer trainer = {.step = "objectives",
                     .train = train,
                     .state_bytes = state_bytes,
                     .traffic = traffic,
                     .num_stages = num_stages_of,
                     .bubble = bubble};
  trainer.options.own = step_options<BucketOptions, PipelineOptions, ObjectiveOptions>();
  trainer.options.data.num_microbatches = 4;  // as in step 8
  return trainer;
}

}  // namespace ladder::objectives
