#include "step8_pipeline_ga/cost_card.hpp"

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::step8 {
namespace {

// Each microbatch goes from so many of the stage's chunks to the next one, and comes to so many.
Traffic messages(const TrainOptions& options, const BatchCounts& batches, std::int64_t num_sent,
                 std::int64_t num_received) {
  Traffic traffic;
  const std::int64_t calls = num_sent * batches.microbatches;
  const std::int64_t bytes_per_row = options.shape.rows_per_sample * options.model.context *
                                     options.model.channels * options.model.precision.param_bytes();
  traffic[CommOp::kSend] = {calls, num_sent * batches.rows * bytes_per_row, calls};
  traffic[CommOp::kRecv] = {.calls = num_received * batches.microbatches};
  return traffic;
}

// The stage's chunks without the model's first one, and without its last one.
struct Chunks {
  std::int64_t not_first, not_last;
};
Chunks chunks_of(const TrainOptions& options, const Place& place) {
  const std::int64_t own = options.get<PipelineOptions>().chunks_per_stage;
  return {own - (place.stage == 0 ? 1 : 0), own - (place.stage == place.num_stages - 1 ? 1 : 0)};
}

}  // namespace

Place place_of(const TrainOptions& options, int world_size, int rank) {
  const int num_stages = num_stages_of(options, world_size);
  return {num_stages, rank % num_stages, world_size / num_stages, rank / num_stages};
}

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const std::int64_t own = plan_stage(options, place.num_stages, place.stage).layout.numel;
  const Precision& precision = options.model.precision;
  return {.parameters = precision.param_bytes() * own,
          .gradients = precision.grad_bytes() * own,
          .optimizer = optimizer_bytes(options, own)};
}

Traffic forward_traffic(const TrainOptions& options, const BatchCounts& batches,
                        const Place& place) {
  const auto [not_first, not_last] = chunks_of(options, place);
  return messages(options, batches, not_last, not_first);
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const StagePlan plan = plan_stage(options, place.num_stages, place.stage);
  Traffic sent = scalars_traffic(1, place.num_replicas, place.replica);
  sent += scalars_traffic(2, world_size, rank);
  for (int norm = 0; norm < 2; ++norm)
    sent += scalars_traffic(plan.num_norm_blocks, place.num_stages, place.stage);
  const std::int64_t capacity_bytes = bucket_capacity_bytes(options);
  const std::int64_t grad_bytes = options.model.precision.grad_bytes();
  for (const GradientBucket& bucket : plan_buckets(plan.layout, capacity_bytes))
    sent += all_reduce_traffic(bucket.numel, grad_bytes, place.num_replicas, place.replica);
  if (plan.tied)
    sent += all_reduce_traffic(plan.tied->numel, grad_bytes, 2, place.stage == 0 ? 0 : 1);
  sent *= steps.count();
  if (options.get<PipelineOptions>().docs_per_step > 0) {  // each microbatch's are counted
    Traffic counts = scalars_traffic(1, place.num_replicas, place.replica);
    sent += counts *= steps.batches.microbatches;
  }
  const auto [not_first, not_last] = chunks_of(options, place);
  sent += forward_traffic(options, steps.batches, place);
  return sent += messages(options, steps.batches, not_first, not_last);  // gradients, backward
}

}  // namespace ladder::step8
