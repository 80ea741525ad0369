#include "step8_pipeline_ga/objectives/step_objective.hpp"

#include <utility>

#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/runner/evaluate.hpp"

namespace ladder {

double evaluate(PipelineRunner& pipeline, const StepObjective& objective,
                const Microbatches& batches, const Mesh& mesh) {
  const auto prepare = [&](Microbatches& own) { objective.prepare(own, {.is_validation = true}); };
  return evaluate(pipeline, objective, batches, mesh, prepare);
}

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

}  // namespace ladder
