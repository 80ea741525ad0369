// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/step_objective.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder::step8 {
namespace {

// A rank's place, from numbers alone.
struct Place {
  int num_stages, stage, num_replicas, replica;
};

Place place_of(const TrainOptions& options, int world_size, int rank) {
  const int num_stages = num_stages_of(options, world_size);
  return {num_stages, rank % num_stages, world_size / num_stages, rank / num_stages};
}

// The messages that a microbatch sends from this stage: activations of every chunk but the model's
// last, once more for a second model, and gradients of every chunk but its first.
struct Messages {
  std::int64_t sent, received;
};
Messages messages_per_microbatch(const TrainOptions& options, const Place& place) {
  const std::int64_t own = options.get<PipelineOptions>().chunks_per_stage;
  const std::int64_t forwards = has_second_model(options) ? 2 : 1;
  const std::int64_t not_first = own - (place.stage == 0 ? 1 : 0);
  const std::int64_t not_last = own - (place.stage == place.num_stages - 1 ? 1 : 0);
  return {forwards * not_last + not_first, forwards * not_first + not_last};
}

// What the last stages gather so that assignments are balanced over the whole step: the scores of
// so many samples, all replicas' together.
Traffic gathered_scores(const TrainOptions& options, const Place& place, std::int64_t samples) {
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  if (objective.kind != ObjectiveKind::kSelfDistillation ||
      objective.distillation.scope != SinkhornScope::kBatch || place.stage + 1 < place.num_stages)
    return {};
  return all_gather_traffic(2 * samples * objective.distillation.prototypes, 4, place.num_replicas,
                            place.replica);
}

// The sums that the objective's metrics are formed from.
std::int64_t num_metric_sums(const ObjectiveOptions& objective) {
  switch (objective.kind) {
    case ObjectiveKind::kLanguageModel:
      return 0;
    case ObjectiveKind::kDpo:
      return kNumDpoSums;
    case ObjectiveKind::kSelfDistillation:
      return 1 + objective.distillation.prototypes;
  }
  return 0;
}

// What each microbatch sends.
Traffic microbatch_traffic(const TrainOptions& options, const Place& place) {
  const auto [sent, received] = messages_per_microbatch(options, place);
  Traffic traffic;
  if (options.get<PipelineOptions>().docs_per_step > 0)  // its documents are counted
    traffic = scalars_traffic(1, place.num_replicas, place.replica);
  traffic[CommOp::kSend] = {.calls = sent, .messages = sent};
  traffic[CommOp::kRecv] = {.calls = received};
  return traffic;
}

// Besides, what each row of it sends.
Traffic row_traffic(const TrainOptions& options, const Place& place) {
  Traffic traffic = gathered_scores(options, place, place.num_replicas);
  traffic[CommOp::kAllGather] = {.bytes_sent = traffic[CommOp::kAllGather].bytes_sent};
  traffic[CommOp::kSend].bytes_sent =
      messages_per_microbatch(options, place).sent * options.shape.rows_per_sample *
      options.model.context * options.model.channels * options.model.precision.param_bytes();
  return traffic;
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const std::int64_t own = plan_stage(options, place.num_stages, place.stage).layout.numel;
  const Precision& precision = options.model.precision;
  return {.parameters = (precision.param_bytes() + second_model_bytes(options)) * own,
          .gradients = precision.grad_bytes() * own,
          .optimizer = optimizer_bytes(options, own)};
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const StagePlan plan = plan_stage(options, place.num_stages, place.stage);
  Traffic sent = scalars_traffic(1, place.num_replicas, place.replica);
  sent += scalars_traffic(2, world_size, rank);
  for (int norm = 0; norm < 2; ++norm)
    sent += scalars_traffic(plan.num_norm_blocks, place.num_stages, place.stage);
  if (const std::int64_t sums = num_metric_sums(options.get<ObjectiveOptions>()); sums > 0)
    sent += scalars_traffic(sums, world_size, rank);
  Traffic gather = gathered_scores(options, place, place.num_replicas);
  gather[CommOp::kAllGather].bytes_sent = 0;  // the rows below have them
  sent += gather;
  const std::int64_t capacity_bytes = bucket_capacity_bytes(options);
  const std::int64_t grad_bytes = options.model.precision.grad_bytes();
  for (const GradientBucket& bucket : plan_buckets(plan.layout, capacity_bytes))
    sent += all_reduce_traffic(bucket.numel, grad_bytes, place.num_replicas, place.replica);
  if (plan.tied)
    sent += all_reduce_traffic(plan.tied->numel, grad_bytes, 2, place.stage == 0 ? 0 : 1);
  sent *= steps.count();
  Traffic messages = microbatch_traffic(options, place);
  Traffic rows = row_traffic(options, place);
  sent += messages *= steps.batches.microbatches;
  return sent += rows *= steps.batches.rows;
}

}  // namespace ladder::step8
