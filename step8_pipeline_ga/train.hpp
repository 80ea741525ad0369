// Step 8: the model is cut into stages, and microbatches flow through them.
#pragma once

#include "common/train/trainer.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step8_pipeline_ga/cost_card.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"

namespace ladder::step8 {

// Trains for what make_objective makes.
//
// Collective: every rank of the world calls it with the same options. If one rank throws, the
//             others wait until the caller ends them, as run_main does. Throws UsageError naming
//             --pipeline-stages if the stages do not divide the ranks, or there are fewer
//             microbatches or blocks than stages.
TrainReport train(const TrainOptions& options, World& world, const MakeObjective& make_objective);

// Four microbatches, so that stages have something to do at the same time.
inline TrainOptions default_options() {
  TrainOptions options = {.own = step_options<BucketOptions, PipelineOptions, MovedObjectives>()};
  options.data.num_microbatches = 4;
  return options;
}

inline Trainer trainer() {
  return {
      .step = "step8_pipeline_ga",
      .train = [](const TrainOptions& options,
                  World& world) { return train(options, world, next_token); },
      .state_bytes = state_bytes,
      .traffic = traffic,
      .working_bytes = working_bytes,
      .num_stages = num_stages_of,
      .schedule = schedule_json,
      .bubble = bubble,
      .picture = {"--show-schedule",
                  "draw what each stage computes when, as text or into FILE.svg, and exit",
                  draw_schedule},
      .options = default_options(),
  };
}

}  // namespace ladder::step8
