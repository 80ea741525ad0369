// Step 8's cost card, and what a second model and an objective's metrics add to it.
#include "step8_pipeline_ga/cost_card.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/objectives/theory.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::objectives {
namespace {

// What the last stages gather so that assignments are balanced over the whole step: all replicas'
// scores, 8 K bytes per sample.
void add_gathered_scores(SendPlan& plan, const TrainOptions& options, const step8::Place& place) {
  const auto& [kind, dpo, distillation] = options.get<ObjectiveOptions>();
  if (kind != ObjectiveKind::kSelfDistillation || distillation.scope != SinkhornScope::kBatch ||
      place.stage + 1 < place.mesh.num_stages)
    return;
  const std::int64_t rows = full_step(options).batches.rows;
  plan.each_step({.phase = StepPhase::kStart,
                  .operation = CommOp::kAllGather,
                  .numel = rows * 2 * place.mesh.num_replicas * distillation.prototypes,
                  .element_bytes = 4},
                 rows);
}

// A teacher, or a reference without a cache.
bool has_second_model(const ObjectiveOptions& objective) {
  return objective.kind == ObjectiveKind::kSelfDistillation ||
         (objective.kind == ObjectiveKind::kDpo && objective.dpo.cache.empty());
}

// The sums that the objective's metrics are formed from.
std::int64_t num_metric_sums(const ObjectiveOptions& objective) {
  if (objective.kind == ObjectiveKind::kDpo) return kNumDpoSums;
  const bool has_teacher = objective.kind == ObjectiveKind::kSelfDistillation;
  return has_teacher ? 1 + objective.distillation.prototypes : 0;
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  StateBytes bytes = step8::state_bytes(options, world_size, rank);
  if (!has_second_model(objective)) return bytes;
  const step8::Place place = step8::place_of(options, world_size, rank);
  const Precision& precision = options.model.precision;
  const bool has_masters =
      objective.kind == ObjectiveKind::kSelfDistillation && precision.has_16_bit_params();
  bytes.parameters += (precision.param_bytes() + (has_masters ? 4 : 0)) *
                      step8::plan_stage(options, place).layout.numel;
  return bytes;
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  const step8::Place place = step8::place_of(options, world_size, rank);
  SendPlan more(steps, place.replicas());
  if (has_second_model(objective))
    step8::add_forward_sends(more, options, place, step8::plan_stage(options, place));
  add_gathered_scores(more, options, place);
  if (const std::int64_t sums = num_metric_sums(objective); sums > 0) {
    more.sum_of_doubles(StepPhase::kEnd, sums);
    more.sum_of_doubles(StepPhase::kEnd, sums, place.stages());
  }
  std::vector<Send> sends = step8::sends(options, steps, world_size, rank);
  sends.insert(sends.end(), more.sends().begin(), more.sends().end());
  return sends;
}

}  // namespace ladder::objectives
