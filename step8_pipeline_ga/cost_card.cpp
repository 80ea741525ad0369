// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step8_pipeline_ga/pipeline_use.hpp"
#include "step8_pipeline_ga/stage_plan.hpp"
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
// last, gradients of every chunk but its first. As many arrive.
std::int64_t messages_per_microbatch(const TrainOptions& options, const Place& place) {
  const std::int64_t own = options.pipeline.chunks_per_stage;
  return 2 * own - (place.stage == 0 ? 1 : 0) - (place.stage == place.num_stages - 1 ? 1 : 0);
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const std::int64_t own = plan_stage(options, place.num_stages, place.stage).layout.numel;
  return {.parameters = 4 * own, .gradients = 4 * own, .optimizer = optimizer_bytes(options, own)};
}

Traffic microbatch_traffic(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const std::int64_t count = messages_per_microbatch(options, place);
  Traffic traffic;
  traffic[CommOp::kSend] = {.calls = count, .messages = count};
  traffic[CommOp::kRecv] = {.calls = count};
  return traffic;
}

Traffic row_traffic(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  Traffic traffic;
  traffic[CommOp::kSend].bytes_sent =
      messages_per_microbatch(options, place) * options.model.context * options.model.channels * 4;
  return traffic;
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  const Place place = place_of(options, world_size, rank);
  const StagePlan plan = plan_stage(options, place.num_stages, place.stage);
  Traffic traffic = scalars_traffic(1, place.num_replicas, place.replica);
  traffic += scalars_traffic(2, world_size, rank);
  for (int norm = 0; norm < 2; ++norm)
    traffic += scalars_traffic(plan.num_norm_blocks, place.num_stages, place.stage);
  const std::int64_t capacity_bytes = bucket_capacity_bytes(options);
  for (const GradientBucket& bucket : plan_buckets(plan.layout, capacity_bytes))
    traffic += all_reduce_traffic(bucket.numel, 4, place.num_replicas, place.replica);
  if (plan.tied) traffic += all_reduce_traffic(plan.tied->numel, 4, 2, place.stage == 0 ? 0 : 1);
  const std::int64_t microbatches = microbatches_per_step(options);
  Traffic messages = microbatch_traffic(options, world_size, rank);
  Traffic bytes = row_traffic(options, world_size, rank);
  traffic += messages *= microbatches;
  return traffic += bytes *= microbatches * options.data.microbatch_size;
}

}  // namespace ladder::step8
