#include "step8_pipeline_ga/objectives/step_objective.hpp"

#include <utility>

#include "step8_pipeline_ga/objectives/distillation_objective.hpp"
#include "step8_pipeline_ga/objectives/dpo_objective.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"

namespace ladder {

MetricSums take_sums(MetricSums& own, std::size_t size, Communicator& world) {
  MetricSums sums = std::exchange(own, {});
  sums.resize(size);  // only last stages have scored anything
  all_reduce_sum(sums, world);
  return sums;
}

StepObjective make_objective(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                             const FlatModel& student, Optimizer& optimizer,
                             const BatchStream& batches) {
  switch (options.get<ObjectiveOptions>().kind) {
    case ObjectiveKind::kLanguageModel:
      return {kNextToken};
    case ObjectiveKind::kDpo:
      return dpo_objective(options, plan, mesh, batches);
    case ObjectiveKind::kSelfDistillation:
      return distillation_objective(options, plan, mesh, student, optimizer);
  }
  return {};
}

bool has_second_model(const TrainOptions& options) {
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  return objective.kind == ObjectiveKind::kSelfDistillation ||
         (objective.kind == ObjectiveKind::kDpo && objective.dpo.cache.empty());
}

std::int64_t second_model_bytes(const TrainOptions& options) {
  if (!has_second_model(options)) return 0;
  const Precision& precision = options.model.precision;
  const bool is_teacher = options.get<ObjectiveOptions>().kind == ObjectiveKind::kSelfDistillation;
  return precision.param_bytes() + (is_teacher && precision.has_16_bit_params() ? 4 : 0);
}

}  // namespace ladder
