// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step8_pipeline_ga/train.hpp"

#include <algorithm>
#include <utility>

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::step8 {
namespace {

// Of a forward through all chunks, or of the backward: each chunk sends every microbatch on, but
// the model's last one, and receives it, but the first one.
Traffic messages(const TrainOptions& options, const BatchCounts& batches, const Place& place,
                 bool is_backward) {
  const std::int64_t own = options.get<PipelineOptions>().chunks_per_stage;
  std::int64_t num_sent = own - (place.stage == place.num_stages - 1 ? 1 : 0);
  std::int64_t num_received = own - (place.stage == 0 ? 1 : 0);
  if (is_backward) std::swap(num_sent, num_received);
  const std::int64_t calls = num_sent * batches.microbatches;
  const std::int64_t bytes_per_row = batch_shape(options).rows_per_sample * options.model.context *
                                     options.model.channels * options.model.precision.param_bytes();
  Traffic traffic;
  traffic[CommOp::kSend] = {calls, num_sent * batches.rows * bytes_per_row, calls};
  traffic[CommOp::kRecv] = {.calls = num_received * batches.microbatches};
  return traffic;
}

// What a chunk holds of one microbatch, in bytes: until its backward is over; at most in it; and of
// that, what comes on top of the layers that still keep theirs.
struct ChunkActivations {
  double saved = 0, most = 0, working = 0;
};

std::vector<ChunkActivations> chunk_activations(const TrainOptions& options,
                                                const PipelineCut& cut) {
  TrainOptions apart = options;  // a tied head on another stage than the embedding shares nothing
  if (cut.num_stages > 1) apart.model.tie_embeddings = false;
  const std::vector<LayerActivations> layers = layer_activations(apart);
  std::vector<ChunkActivations> chunks;
  for (const std::vector<std::int64_t>& chunk : cut.chunks) {
    const std::vector<LayerActivations> own(layers.begin() + chunk.front(),
                                            layers.begin() + chunk.back() + 1);
    chunks.push_back({.most = most_activation_bytes(own)});
    for (const LayerActivations& layer : own) {
      chunks.back().saved += layer.saved;
      chunks.back().working = std::max(chunks.back().working, layer.working);
    }
  }
  return chunks;
}

// Goes through what a stage does, and keeps what PipelineRunner keeps: of a microbatch what its
// forward has saved, until its backward, or the half for the weights, is over (that half needs no
// more than was saved); a message from its receive on until it is used up, or from its making until
// the second send after it.
double most_bytes_on_stage(const PipelinePlan& plan, int stage,
                           const std::vector<ChunkActivations>& chunks, double message) {
  double held = 0, most = 0;
  int num_on_their_way = 0;
  for (const Action& action : plan.stages[static_cast<std::size_t>(stage)]) {
    const auto& [saved, most_of_chunk, working] = chunks[static_cast<std::size_t>(action.chunk)];
    const double from_before = action.chunk > 0 ? message : 0;
    const double to_next = action.chunk + 1 < plan.num_chunks() ? message : 0;
    switch (action.kind) {
      case ActionKind::kForward:  // its first norm saves what came
        most = std::max(most, held + most_of_chunk);
        held += saved - from_before + to_next;
        break;
      case ActionKind::kBackward:
        most = std::max(most, held - saved + most_of_chunk + from_before);
        held += from_before - to_next - saved;
        break;
      case ActionKind::kInputBackward:
        most = std::max(most, held + working + from_before);
        held += from_before - to_next;
        break;
      case ActionKind::kWeightBackward:
        most = std::max(most, held - saved + most_of_chunk);
        held -= saved;
        break;
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient:
        held += message;
        break;
      case ActionKind::kSendActivation:
      case ActionKind::kSendGradient:
        if (++num_on_their_way > 2) held -= message;
    }
    most = std::max(most, held);
  }
  return most;
}

// After a few rounds of all stages, a further microbatch adds nothing, or one that is live.
double most_activations(const TrainOptions& options, const Place& place, const PipelineCut& cut) {
  const auto& pipeline = options.get<PipelineOptions>();
  const std::vector<ChunkActivations> chunks = chunk_activations(options, cut);
  const std::int64_t rows = batch_shape(options).rows_per_sample * options.data.microbatch_size;
  const auto message = static_cast<double>(rows * options.model.context * options.model.channels *
                                           options.model.precision.param_bytes());
  const auto with = [&](std::int64_t num_microbatches) {
    const PipelinePlan plan = plan_pipeline(pipeline.schedule, place.num_stages, num_microbatches,
                                            static_cast<int>(pipeline.chunks_per_stage));
    return most_bytes_on_stage(plan, place.stage, chunks, message);
  };
  const std::int64_t p = place.num_stages, few = 2 * p * (pipeline.chunks_per_stage + 1);
  const std::int64_t more = options.data.num_microbatches - few;
  if (more <= 0) return with(options.data.num_microbatches);
  const double of_few = with(few);
  return of_few + (with(few + p) - of_few) / static_cast<double>(p) * static_cast<double>(more);
}

}  // namespace

std::optional<std::int64_t> working_bytes(const TrainOptions& options, int world_size, int rank) {
  if (options.get<PipelineOptions>().docs_per_step > 0) return std::nullopt;
  const Place place = place_of(options, world_size, rank);
  const StagePlan plan = plan_stage(options, place.num_stages, place.stage);
  const std::int64_t bytes_each = options.model.precision.grad_bytes();
  const double buckets = fold_bytes(options, plan.layout.numel, bytes_each, place.num_replicas);
  const double tied = plan.tied ? fold_bytes(options, plan.tied->numel, bytes_each, 2) : 0;
  const double saved = 4.0 * static_cast<double>(largest_unit(plan.layout));
  return ladder::working_bytes(options, most_activations(options, place, plan.cut),
                               {buckets, std::max(tied, saved)});
}

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
  return messages(options, batches, place, /*is_backward=*/false);
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
  sent += forward_traffic(options, steps.batches, place);
  return sent += messages(options, steps.batches, place, /*is_backward=*/true);
}

}  // namespace ladder::step8
