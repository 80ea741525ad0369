// Step 8's cost card, and what a second model and an objective's metrics add to it.
#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::objectives {
namespace {

// What the last stages gather so that assignments are balanced over the whole step: all replicas'
// scores. One call per step, with 8 K bytes per sample.
Traffic gathered_scores(const TrainOptions& options, const StepsTaken& steps,
                        const step8::Place& place) {
  const auto& [kind, dpo, distillation] = options.get<ObjectiveOptions>();
  if (kind != ObjectiveKind::kSelfDistillation || distillation.scope != SinkhornScope::kBatch ||
      place.stage + 1 < place.num_stages)
    return {};
  Traffic traffic = all_gather_traffic(2 * place.num_replicas * distillation.prototypes, 4,
                                       place.num_replicas, place.replica);
  OpTraffic& gathers = traffic[CommOp::kAllGather];
  gathers = {gathers.calls * steps.count(), gathers.bytes_sent * steps.batches.rows,
             gathers.messages * steps.count()};
  return traffic;
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
                      plan_stage(options, place.num_stages, place.stage).layout.numel;
  return bytes;
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  const step8::Place place = step8::place_of(options, world_size, rank);
  Traffic sent = step8::traffic(options, steps, world_size, rank);
  if (has_second_model(objective)) sent += step8::forward_traffic(options, steps.batches, place);
  if (const std::int64_t sums = num_metric_sums(objective); sums > 0) {
    Traffic metrics = scalars_traffic(sums, world_size, rank);
    sent += metrics *= steps.count();
  }
  return sent += gathered_scores(options, steps, place);
}

}  // namespace ladder::objectives
