// The chapter of step 8 about objectives: its pipeline learns from the next token, from pairs of
// answers, or from itself.
#pragma once

#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/self_distillation.hpp"
#include "step8_pipeline_ga/objectives/theory.hpp"
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

inline Trainer trainer() {
  return {theory(), [](const TrainOptions& options, Communicator& comm) {
            return step8::train(options, comm, make_objective);
          }};
}

}  // namespace ladder::objectives
