// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step8_pipeline_ga/cost_card.hpp"
#include "step8_pipeline_ga/theory.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/comm/mesh_shape.hpp"
#include "common/core/check.hpp"
#include "common/model/family.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/planner.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::step8 {
namespace {

// Of a full microbatch: its tokens, and the activations between two layers.
std::int64_t tokens_of_microbatch(const TrainOptions& options) {
  return batch_shape(options).rows_per_sample * options.data.microbatch_size *
         options.model.context;
}
std::int64_t activations_numel(const TrainOptions& options) {
  return tokens_of_microbatch(options) * options.model.channels;
}

// The messages of a stage: each of its chunks receives what the chunk before it, in this direction,
// has made of a microbatch, and sends its own result on. In between, tensor ranks add up what each
// has computed of a layer: twice in a block, where its attention and its MLP end in forward and begin
// in backward; once where the embedding ends, and where the head begins; and of the loss, three
// numbers of each token for each of them. If they cut rows as well, such a sum leaves a rank its own
// rows; rows are gathered where nothing is added up; and backward adds up the gradients of what all
// parts use.
class Messages {
 public:
  Messages(SendPlan& plan, const TrainOptions& options, const Place& place, const StagePlan& stage)
      : plan_(plan), options_(options), place_(place), stage_(stage), cut_(stage.cut) {}

  void forward() {
    for (const std::size_t chunk : cut_.chunks_on(place_.stage)) {
      if (chunk > 0) receive(StepPhase::kBeforeForward, cut_.chunks[chunk].front(), -1);
      for (const std::int64_t layer : cut_.chunks[chunk]) forward_of(layer);
      if (chunk + 1 < cut_.chunks.size())
        send(StepPhase::kAfterForward, cut_.chunks[chunk].back(), 1);
    }
  }
  void backward() {
    for (const std::size_t chunk : cut_.chunks_on(place_.stage)) {
      if (chunk + 1 < cut_.chunks.size())
        receive(StepPhase::kBeforeBackward, cut_.chunks[chunk].back(), 1);
      for (auto layer = cut_.chunks[chunk].rbegin(); layer != cut_.chunks[chunk].rend(); ++layer)
        backward_of(*layer);
      if (chunk > 0) send(StepPhase::kAfterBackward, cut_.chunks[chunk].front(), -1);
    }
  }

 private:
  bool is_head(std::int64_t layer) const { return layer == options_.model.layers + 1; }
  // How often a layer gives x to all parts, and adds up what they make of it.
  int num_spreads(std::int64_t layer) const { return layer == 0 ? 0 : is_head(layer) ? 1 : 2; }
  int num_sums(std::int64_t layer) const { return layer == 0 ? 1 : is_head(layer) ? 0 : 2; }

  void forward_of(std::int64_t layer) {
    compute(StepPhase::kAfterForward, layer);
    if (is_head(layer))
      exchange(StepPhase::kAfterForward, layer, CommOp::kAllReduce,
               3 * place_.mesh.num_tensor_ranks * tokens_of_microbatch(options_), 4,
               options_.data.microbatch_size);
  }
  void backward_of(std::int64_t layer) {
    const bool is_block = layer > 0 && !is_head(layer);
    if (is_block && options_.model.recompute == Recompute::kBlocks)
      compute(StepPhase::kBeforeBackward, layer);
    of_activations(StepPhase::kAfterBackward, layer, num_sums(layer), num_spreads(layer));
    add_up_shared(layer);
  }
  void compute(StepPhase phase, std::int64_t layer) {
    of_activations(phase, layer, num_spreads(layer), num_sums(layer));
  }
  // What is gathered, if rows are cut, and what is added up.
  void of_activations(StepPhase phase, std::int64_t layer, int num_gathered, int num_summed) {
    const CommOp sum = place_.mesh.cuts_rows ? CommOp::kReduceScatter : CommOp::kAllReduce;
    for (int i = 0; i < num_gathered + num_summed; ++i) {
      if (i < num_gathered && !place_.mesh.cuts_rows) continue;
      const bool is_sum = i >= num_gathered, is_block = layer > 0 && !is_head(layer);
      const bool is_hidden = is_sum && is_block && phase == StepPhase::kAfterBackward;
      exchange(phase, layer, is_sum ? sum : CommOp::kAllGather, activations_numel(options_),
               options_.model.precision.param_bytes(), options_.data.microbatch_size,
               is_hidden ? Wait::kForWeights : Wait::kAtOnce);
    }
  }
  // The gradients of what all parts use, of which each rank has those of its rows; or, if all have
  // all rows, of what heads share, of which each rank has those of its heads.
  void add_up_shared(std::int64_t layer) {
    const std::vector<std::int64_t> layers = cut_.layers_of(place_.stage);
    const auto number = std::ranges::find(layers, layer) - layers.begin();
    const FlatUnit& unit = stage_.layout.units[static_cast<std::size_t>(number)];
    for (const FlatTensor& tensor : stage_.layout.tensors) {
      const bool is_here = tensor.start >= unit.start && tensor.start < unit.start + unit.numel;
      const bool is_partial =
          place_.mesh.cuts_rows || traits_of(options_.model.family).is_shared_by_heads(tensor.name);
      if (is_here && !tensor.part && tensor.is_trainable && is_partial)
        exchange(StepPhase::kAfterBackward, layer, CommOp::kAllReduce, tensor.numel,
                 options_.model.precision.param_bytes(), /*full_rows=*/0);
    }
  }
  void exchange(StepPhase phase, std::int64_t layer, CommOp operation, std::int64_t numel,
                std::int64_t element_bytes, std::int64_t full_rows, Wait wait = Wait::kAtOnce) {
    if (place_.mesh.num_tensor_ranks == 1) return;
    plan_.each_microbatch({.phase = phase,
                           .layer = static_cast<int>(layer),
                           .operation = operation,
                           .numel = numel,
                           .element_bytes = element_bytes,
                           .wait = wait,
                           .group = place_.tensor_ranks()},
                          full_rows);
  }

  // The ranks of two neighboring stages, of which this is the first.
  RankGroup with_neighbor(int step) const {
    const int num_stages = place_.mesh.num_stages;
    const int neighbor = (place_.stage + step + num_stages) % num_stages;
    const RankGroup stages = place_.stages();
    return {.first = stages.first + place_.stage * stages.stride,
            .stride = (neighbor - place_.stage) * stages.stride,
            .size = 2};
  }
  void receive(StepPhase phase, std::int64_t layer, int step) {
    plan_.each_microbatch({.phase = phase,
                           .layer = static_cast<int>(layer),
                           .operation = CommOp::kRecv,
                           .group = with_neighbor(step)});
  }
  void send(StepPhase phase, std::int64_t layer, int step) {
    plan_.each_microbatch({.phase = phase,
                           .layer = static_cast<int>(layer),
                           .operation = CommOp::kSend,
                           .numel = activations_numel(options_) / place_.row_owners(),
                           .element_bytes = options_.model.precision.param_bytes(),
                           .wait = Wait::kForNothing,
                           .group = with_neighbor(step)},
                          /*full_rows=*/options_.data.microbatch_size);
  }

  SendPlan& plan_;
  const TrainOptions& options_;
  const Place& place_;
  const StagePlan& stage_;
  const PipelineCut& cut_;
};

// What a chunk holds of one microbatch, in bytes: until its backward is over; at most in it; of
// that, what comes on top of the layers that still keep theirs; what its layers compute again, which
// a weight half keeps; and what they hold at most in that half.
struct ChunkActivations {
  double saved = 0, most = 0, working = 0, recomputed = 0, most_in_weight_half = 0;
};

std::vector<ChunkActivations> chunk_activations(const TrainOptions& options, const PipelineCut& cut,
                                                const MeshShape& mesh) {
  TrainOptions apart = options;  // a tied head on another stage than the embedding shares nothing
  if (cut.num_stages > 1) apart.model.tie_embeddings = false;
  const std::vector<LayerActivations> layers =
      layer_activations(apart, mesh.num_tensor_ranks, mesh.cuts_rows);
  std::vector<ChunkActivations> chunks;
  for (const std::vector<std::int64_t>& chunk : cut.chunks) {
    std::vector<LayerActivations> own(layers.begin() + chunk.front(),
                                      layers.begin() + chunk.back() + 1);
    chunks.push_back({.most = most_activation_bytes(own)});
    for (LayerActivations& layer : own) {
      chunks.back().saved += layer.saved;
      chunks.back().working = std::max(chunks.back().working, layer.working);
      chunks.back().recomputed += layer.recomputed;
      layer.saved += std::exchange(layer.recomputed, 0);
    }
    chunks.back().most_in_weight_half = most_activation_bytes(own);
  }
  return chunks;
}

// Goes through what a stage does, and keeps what PipelineRunner keeps: of a microbatch what its
// forward has saved, until its backward, or its wgrad, is over (a wgrad needs no more than was
// saved, or computed again in the dgrad before); a message from its receive on until it is used up,
// or from its making until the second send after it.
double most_bytes_on_stage(const PipelinePlan& plan, int stage,
                           const std::vector<ChunkActivations>& chunks, double message) {
  double held = 0, most = 0;
  int num_on_their_way = 0;
  for (const Action& action : plan.stages[static_cast<std::size_t>(stage)]) {
    const auto& [saved, most_of_chunk, working, recomputed, most_in_weight_half] =
        chunks[static_cast<std::size_t>(action.chunk)];
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
        most = std::max(most, held + recomputed + working + from_before);
        held += recomputed + from_before - to_next;
        break;
      case ActionKind::kWeightBackward:
        most = std::max(most, held - saved - recomputed + most_in_weight_half);
        held -= saved + recomputed;
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
  const std::vector<ChunkActivations> chunks = chunk_activations(options, cut, place.mesh);
  const auto message = static_cast<double>(
      activations_numel(options) * options.model.precision.param_bytes() / place.row_owners());
  const auto with = [&](std::int64_t num_microbatches) {
    const PipelinePlan plan =
        plan_pipeline(pipeline.schedule, place.mesh.num_stages, num_microbatches,
                      static_cast<int>(pipeline.chunks_per_stage));
    return most_bytes_on_stage(plan, place.stage, chunks, message);
  };
  const std::int64_t p = place.mesh.num_stages, few = 2 * p * (pipeline.chunks_per_stage + 1);
  const std::int64_t more = options.data.num_microbatches - few;
  if (more <= 0) return with(options.data.num_microbatches);
  const double of_few = with(few);
  return of_few + (with(few + p) - of_few) / static_cast<double>(p) * static_cast<double>(more);
}

}  // namespace

std::optional<std::int64_t> working_bytes_at(const TrainOptions& options, const Place& place) {
  if (options.get<PipelineOptions>().docs_per_step > 0) return std::nullopt;
  const StagePlan plan = plan_stage(options, place);
  const std::int64_t bytes_each = options.model.precision.grad_bytes();
  const int num_replicas = place.mesh.num_replicas;
  const double buckets = fold_bytes(options, plan.layout.numel, bytes_each, num_replicas);
  const double tied = plan.tied ? fold_bytes(options, plan.tied->numel, bytes_each, 2) : 0;
  const double saved = 4.0 * static_cast<double>(largest_unit(plan.layout));
  const double layer_sums =
      fold_bytes(options, activations_numel(options), options.model.precision.param_bytes(),
                 place.mesh.num_tensor_ranks);
  return ladder::working_bytes(options, most_activations(options, place, plan.cut),
                               {buckets + layer_sums, std::max(tied, saved)});
}

Place place_of(const TrainOptions& options, const MeshShape& mesh, int rank) {
  const auto total = static_cast<int>(options.model.product_parts);
  const int own = total / mesh.num_tensor_ranks, tensor_rank = mesh.tensor_rank_of(rank);
  return {mesh,
          mesh.stage_of(rank),
          mesh.replica_of(rank),
          tensor_rank,
          {.total = total, .first = tensor_rank * own, .own = own}};
}

Place place_of(const TrainOptions& options, int world_size, int rank) {
  return place_of(options, mesh_of(options, world_size), rank);
}

StagePlan plan_stage(const TrainOptions& options, const Place& place) {
  return ladder::plan_stage(options, place.mesh.num_stages, place.stage, place.parts);
}

RankGroup Place::replicas() const {
  return {.first = mesh.rank_of(stage, 0, tensor_rank),
          .stride = mesh.num_tensor_ranks,
          .size = mesh.num_replicas};
}

RankGroup Place::stages() const {
  return {.first = mesh.rank_of(0, replica, tensor_rank),
          .stride = mesh.num_replicas * mesh.num_tensor_ranks,
          .size = mesh.num_stages};
}

RankGroup Place::tensor_ranks() const {
  return {.first = mesh.rank_of(stage, replica), .size = mesh.num_tensor_ranks};
}

RankGroup Place::model_ranks() const {
  return {.first = mesh.rank_of(0, replica),
          .stride = mesh.num_replicas * mesh.num_tensor_ranks,
          .size = mesh.ranks_per_replica(),
          .neighbors = mesh.num_tensor_ranks};
}

StateBytes state_bytes_at(const TrainOptions& options, const Place& place) {
  const std::int64_t own = plan_stage(options, place).layout.numel;
  const Precision& precision = options.model.precision;
  return {.parameters = precision.param_bytes() * own,
          .gradients = precision.grad_bytes() * own,
          .optimizer = optimizer_bytes(options, own)};
}

OptimizerWork optimizer_work_at(const TrainOptions& options, const Place& place) {
  const auto own = static_cast<double>(plan_stage(options, place).layout.numel);
  return {.updated = own, .normed = 2 * own};
}

void add_forward_sends(SendPlan& plan, const TrainOptions& options, const Place& place,
                       const StagePlan& stage) {
  Messages(plan, options, place, stage).forward();
}

std::vector<Send> sends_at(const TrainOptions& options, const StepsTaken& steps,
                           const Place& place) {
  const StagePlan stage = plan_stage(options, place);
  const RankGroup stages = place.stages(), all = place.model_ranks();
  const RankGroup ends = {
      .first = stages.first, .stride = (stages.size - 1) * stages.stride, .size = 2};

  SendPlan plan(steps, place.replicas());
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  if (options.get<PipelineOptions>().docs_per_step > 0)  // each microbatch's are counted
    plan.each_microbatch({.phase = StepPhase::kStart, .numel = 1, .element_bytes = sizeof(double)});
  Messages messages(plan, options, place, stage);
  messages.forward();
  messages.backward();
  const std::int64_t grad_bytes = options.model.precision.grad_bytes();
  for (const GradientBucket& bucket : plan_buckets(stage.layout, bucket_capacity_bytes(options))) {
    plan.each_step({.phase = StepPhase::kGradients,
                    .operation = CommOp::kAllReduce,
                    .numel = bucket.numel,
                    .element_bytes = grad_bytes,
                    .wait = Wait::kForPhase});
  }
  if (stage.tied) {
    plan.each_step({.phase = StepPhase::kGradients,
                    .operation = CommOp::kAllReduce,
                    .numel = stage.tied->numel,
                    .element_bytes = grad_bytes,
                    .group = ends});
  }
  plan.sum_of_doubles(StepPhase::kGradients, stage.num_norm_blocks, all);
  plan.sum_of_doubles(StepPhase::kEnd, stage.num_norm_blocks, all);
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums, all);
  return plan.sends();
}

std::optional<std::int64_t> working_bytes(const TrainOptions& options, int world_size, int rank) {
  return working_bytes_at(options, place_of(options, world_size, rank));
}

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  return state_bytes_at(options, place_of(options, world_size, rank));
}

OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank) {
  return optimizer_work_at(options, place_of(options, world_size, rank));
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  return sends_at(options, steps, place_of(options, world_size, rank));
}

Tries tries(const TrainOptions& options, int world_size) {
  constexpr std::int64_t kMostForwards = 20'000;  // of a pipeline that a planner goes through
  const auto is_given = [&](const char* name) { return options.given.contains(name); };
  const std::int64_t each = is_given("num-microbatches") ? options.data.num_microbatches : 1;
  std::vector<int> stages;
  if (is_given("pipeline-stages")) {
    stages = {options.get<PipelineOptions>().num_stages};
  } else {
    for (int number = 2; number <= 64; number *= 2)
      if (world_size % number == 0) stages.push_back(number);
    if (!std::has_single_bit(static_cast<unsigned>(world_size))) stages.push_back(world_size);
    std::erase_if(stages, [&](int number) { return number > options.model.layers; });
  }
  Tries all;
  for (const int number : stages) {
    if (number * each * number > kMostForwards) continue;
    Try one;
    if (!is_given("pipeline-stages"))
      one = {concat(number, " stages"), concat("--pipeline-stages ", number)};
    if (!is_given("local-batch-size") && !is_given("accumulation"))
      one.words += concat(" --num-microbatches ", each * number);
    if (is_given("pipeline-schedule")) {
      all.push_back(one);
      continue;
    }
    const auto add = [&](const char* schedule, const char* more) {
      all.push_back({concat(one.name, one.name.empty() ? "" : ", ", schedule),
                     concat(one.words, " --pipeline-schedule ", schedule, more)});
    };
    for (const char* schedule : {"1f1b", "gpipe", "zero-bubble"}) add(schedule, "");
    if (2 * number <= options.model.layers) add("interleaved", " --chunks-per-stage 2");
  }
  return all;
}

}  // namespace ladder::step8
