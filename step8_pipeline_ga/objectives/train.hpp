// The chapter of step 8 about objectives: its pipeline learns from the next token, from pairs of
// answers, or from itself.
#pragma once

#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/self_distillation.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder::objectives {

// What the options name.
inline std::unique_ptr<StepObjective> make_objective(const TrainOptions& options,
                                                     const StagePlan& plan, const Mesh& mesh,
                                                     const FlatModel& model, Optimizer& optimizer) {
  switch (options.get<ObjectiveOptions>().kind) {
    case ObjectiveKind::kDpo:
      return make_dpo(options, plan, mesh);
    case ObjectiveKind::kSelfDistillation:
      return make_self_distillation(options, plan, mesh, model, optimizer);
    case ObjectiveKind::kLanguageModel:
      break;
  }
  return next_token(options, plan, mesh, model, optimizer);
}

// Those of step 8, and a second model of the same stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// That of step 8, once more the activations of a forward, through the second model, the sums of the
// metrics, and the scores that are balanced over a whole step.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

inline Trainer trainer() {
  Trainer trainer = {
      .step = "objectives",
      .role = RankRole::kStage,
      .num_models = 2,
      .keeps = {"reference log-probabilities"},
      .train = [](const TrainOptions& options,
                  Communicator& comm) { return step8::train(options, comm, make_objective); },
      .state_bytes = state_bytes,
      .sends = sends,
      .mesh = step8::mesh_of,
      .bubble = step8::bubble,
      .tries = never};
  trainer.options.own = step_options<BucketOptions, PipelineOptions, ObjectiveOptions>();
  trainer.options.data.num_microbatches = 4;  // as in step 8
  return trainer;
}

}  // namespace ladder::objectives
