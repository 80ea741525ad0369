#include "tests/parity/closed_form.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "step5_zero1/shard_options.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {
namespace {

using ::testing::AnyOf;

constexpr std::int64_t kNormSlice = 1024;  // elements: a rank's slice consists of such blocks

// Bytes per element.
struct Widths {
  std::int64_t parameter, gradient;
  std::int64_t master;  // of 16-bit parameters
  std::int64_t alignment() const { return 64 / std::min(parameter, gradient); }  // elements
};

Widths widths_of(const ModelOptions& model) {
  const bool is_narrow = model.precision.params != NumberFormat::kFp32;
  return {is_narrow ? 2 : 4, model.precision.grads != NumberFormat::kFp32 ? 2 : 4,
          is_narrow ? 4 : 0};
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  const std::int64_t rest = value % multiple;
  return rest == 0 ? value : value - rest + multiple;
}

bool is_llama(const ModelOptions& model) {
  return model.family != ModelFamily::kGpt2;
}

// Of a Llama or a relative: the channels of all heads' queries, of its keys, and of a head; and the
// width of its MLP.
std::int64_t head_width(const ModelOptions& model) {
  return model.head_channels != 0 ? model.head_channels : model.channels / model.heads;
}
std::int64_t key_channels(const ModelOptions& model) {
  return head_width(model) * model.kv_heads;
}
std::int64_t mlp_width(const ModelOptions& model) {
  return round_up(8 * model.channels, 3 * 32) / 3;
}

// A unit's tensors: those that all parts use, and those of each part. Of a tied embedding, or of a
// model in one part, there is nothing to cut: then a single part has all of them, in their order.
struct UnitNumels {
  std::vector<std::int64_t> shared;
  std::vector<std::vector<std::int64_t>> parts;
};

// The elements of each tensor, unit by unit: what one part has of the vocabulary, of the heads and of
// the MLP's channels.
std::vector<UnitNumels> units_of(const ModelOptions& model) {
  const std::int64_t C = model.channels, P = model.product_parts, L = model.layers;
  const auto cut = [&](std::int64_t numel, std::int64_t part) {
    return numel * (part + 1) / P - numel * part / P;
  };
  const auto in_parts = [&](const auto& of_part) {
    std::vector<std::vector<std::int64_t>> parts;
    for (std::int64_t part = 0; part < P; ++part) parts.push_back(of_part(part));
    return parts;
  };
  using Numels = std::vector<std::int64_t>;
  const auto vocabulary = [&](std::int64_t part) {
    return Numels{cut(model.vocab_size, part) * C};
  };
  const std::int64_t d = head_width(model), K = key_channels(model) / P, A = d * model.heads / P;
  UnitNumels embedding = {{}, in_parts(vocabulary)}, block, head;
  if (is_llama(model)) {
    block = {{C, C}, in_parts([&](std::int64_t part) {
               const std::int64_t M = cut(mlp_width(model), part);
               Numels numels = {A * C, K * C, K * C, C * A, M * C, M * C, C * M};
               if (model.family == ModelFamily::kQwen2) numels.insert(numels.end(), {A, K, K});
               return numels;
             })};
    if (model.family == ModelFamily::kQwen3) block.shared = {C, C, d, d};
    if (model.family == ModelFamily::kOlmo2) block.shared = {C, C, A, K};  // in one part
    head.shared = {C};
  } else {
    embedding.shared = {model.context * C};
    block = {{C, C, C, C, C, C}, in_parts([&](std::int64_t part) {
               const std::int64_t M = cut(4 * C, part);
               return Numels{3 * A * C, 3 * A, A * C, C * M, M, M * C};
             })};
    head.shared = {C, C};
  }
  if (!model.tie_embeddings) head.parts = in_parts(vocabulary);
  std::vector<UnitNumels> units = {embedding};
  units.resize(static_cast<std::size_t>(1 + L), block);
  units.push_back(head);
  return units;
}

// The elements of a model, or of its blocks alone.
struct Size {
  std::int64_t parameters = 0;
  std::int64_t aligned = 0;  // with padded tensors
  std::int64_t sliced = 0;   // with padded units as well
};

// Units are cut into so many slices. Of each, a rank has the parts first … first + own − 1, of which
// each begins at a block, unless there is only one.
Size size_of(const std::vector<UnitNumels>& units, std::int64_t alignment, int num_slices,
             std::size_t first, std::size_t own) {
  Size size;
  for (const UnitNumels& unit : units) {
    std::int64_t aligned = 0;
    const auto add = [&](const std::vector<std::int64_t>& tensors) {
      for (const std::int64_t numel : tensors) {
        size.parameters += numel;
        aligned += round_up(numel, alignment);
      }
    };
    add(unit.shared);
    for (std::size_t part = first; part < first + own && part < unit.parts.size(); ++part) {
      if (unit.parts.size() > 1) aligned = round_up(aligned, kNormSlice);
      add(unit.parts[part]);
    }
    size.aligned += aligned;
    size.sliced += round_up(aligned, num_slices * kNormSlice);
  }
  return size;
}
// All parts.
Size size_of(const std::vector<UnitNumels>& units, std::int64_t alignment, int num_slices) {
  return size_of(units, alignment, num_slices, 0, units[0].parts.size());
}

void expect_size(const ModelOptions& model, const Size& size) {
  const std::int64_t C = model.channels;
  const std::int64_t embeddings = (model.tie_embeddings ? 1 : 2) * model.vocab_size * C;
  const std::int64_t of_gpt2 = model.context * C + model.layers * (12 * C * C + 13 * C) + 2 * C;
  const std::int64_t d = head_width(model), A = d * model.heads, K = key_channels(model);
  const std::int64_t of_block = 2 * A * C + 2 * K * C + 3 * mlp_width(model) * C + 2 * C;
  const std::int64_t in_attention = model.family == ModelFamily::kQwen2   ? A + 2 * K
                                    : model.family == ModelFamily::kQwen3 ? 2 * d
                                    : model.family == ModelFamily::kOlmo2 ? A + K
                                                                          : 0;
  const std::int64_t of_llama = model.layers * (of_block + in_attention) + C;
  EXPECT_EQ(size.parameters, embeddings + (is_llama(model) ? of_llama : of_gpt2));
}

// ZeRO's stages 1, 2 and 3; 0 means none.
int zero_stage(const std::string& step) {
  return step < "step5" || step > "step8" ? 0 : step[4] - '4';
}

// outer: bytes of step 9's global parameters, and of their momentum.
void expect_held(const Size& size, const Widths& widths, int zero, int num_slices,
                 std::int64_t outer, const TrainReport& report) {
  const std::int64_t numel = zero == 0 ? size.aligned : size.sliced;
  const auto held = [&](int first_stage_that_cuts) {
    return numel / (zero >= first_stage_that_cuts ? num_slices : 1);
  };
  EXPECT_EQ(report.num_parameters, size.parameters);
  EXPECT_EQ(report.memory.live(MemoryCategory::kParameters), widths.parameter * held(3) + outer);
  const std::int64_t gradients = report.memory.live(MemoryCategory::kGradients);
  EXPECT_GE(gradients, widths.gradient * held(2));
  if (outer == 0) {  // else with an average in flight, perhaps
    EXPECT_EQ(gradients, widths.gradient * held(2));
  }
  const std::int64_t state = report.memory.live(MemoryCategory::kOptimizer) - outer;
  EXPECT_THAT(state, AnyOf((widths.master + 8) * held(1),  // with AdamW's moments, with SGD,
                           widths.master * held(1), 8 * held(1)));  // or with AdamW without masters
}

void expect_of_replicas(const TrainOptions& options, const TrainReport& report,
                        Communicator& comm) {
  const std::vector<UnitNumels> units = units_of(options.model);
  const Widths widths = widths_of(options.model);
  const auto* const shards = options.own.find<ShardOptions>();
  const int num_slices = shards && shards->num_ranks > 0 ? shards->num_ranks : comm.size();
  const int num_copies = comm.size() / num_slices;
  const Size whole = size_of(units, widths.alignment(), num_slices);
  const Size blocks = size_of({units.begin() + 1, units.end() - 1}, widths.alignment(), num_slices);
  const int zero = zero_stage(options.step);
  const auto* const diloco = options.own.find<DilocoOptions>();
  expect_size(options.model, whole);
  expect_held(whole, widths, zero, num_slices, diloco ? 4 * whole.aligned : 0, report);

  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  const std::int64_t every = diloco ? diloco->sync_every : 1;
  if (report.first_step % every != 0 || num_steps % every != 0) return;  // not whole rounds
  const std::int64_t num_microbatches = report.batch_counts.microbatches;
  // Bytes that pass through a reduce_scatter or an all_gather; an all-reduce counts twice. ZeRO
  // gathers parameters, and without it only gradients travel.
  const std::int64_t g = diloco ? 4 : widths.gradient, p = widths.parameter;
  const auto moved = [&](std::int64_t of_whole, std::int64_t of_blocks) {
    if (zero == 1) return of_whole * (g + p) * num_steps;
    if (zero == 2) return of_whole * (g * num_microbatches + p * num_steps);
    if (zero == 3) return (of_whole * (g + p) + of_blocks * p) * num_microbatches;
    return of_whole * 2 * g * (num_steps / every);
  };
  // By all ranks: within each copy, and then the gradients across copies.
  const auto sent_in_all = [&](std::int64_t of_whole, std::int64_t of_blocks) {
    const std::int64_t num_sums = zero == 1 ? num_steps : num_microbatches;
    return num_copies * (num_slices - 1) * moved(of_whole, of_blocks) +
           (num_copies - 1) * 2 * g * of_whole * num_sums;
  };
  // Doubles: one sum per block of a norm (ZeRO computes two norms), and three numbers per step;
  // of step 9 four, and one per message.
  const std::int64_t num_norms = zero == 0 ? 0 : 2;
  const std::int64_t numbers =
      num_steps * 8 * (num_norms * whole.sliced / kNormSlice + 2 * (diloco ? 5 : 3));
  const std::int64_t least = sent_in_all(whole.parameters, blocks.parameters);
  const std::int64_t most = zero == 0 ? sent_in_all(whole.aligned, blocks.aligned)
                                      : sent_in_all(whole.sliced, blocks.sliced);
  const double sent = all_reduce_sum(static_cast<double>(report.traffic.bytes_sent()), comm);
  EXPECT_GE(sent, static_cast<double>(least));
  EXPECT_LE(sent, static_cast<double>(most + numbers * (comm.size() - 1)));
}

// What t ranks of a model add up of each layer: 4 times the activations in each block, once those of
// the embedding and those of the head, and 3 t numbers of each token for the loss. An all-reduce sends
// its tensor 2 (t - 1) times, by all ranks together; if rows are cut, a reduce-scatter and an all-gather
// send it (t - 1) times each, and the gradients of what all parts use are added up as well; else only
// those of norms that heads share. Besides, there are gradients of replicas and, of a tied embedding,
// of two stages; two norms, and a few numbers.
void expect_sums_of_layers(const TrainOptions& options, const TrainReport& report,
                           std::int64_t activations, std::int64_t rows, std::int64_t numel,
                           Communicator& comm) {
  const ModelOptions& model = options.model;
  const std::int64_t t = report.num_tensor_ranks;
  const std::int64_t per_block = model.recompute == Recompute::kBlocks ? 6 : 4;
  const bool cuts_rows = options.get<TensorOptions>().is_sequence_parallel;
  const std::int64_t of_rows = (t - 1) * (per_block * model.layers + 2) * activations;
  std::int64_t shared = 0;
  for (const UnitNumels& unit : units_of(model))
    for (const std::int64_t of_tensor : unit.shared) shared += of_tensor;
  const auto in_all = [&](std::int64_t value) {
    return static_cast<std::int64_t>(all_reduce_sum(static_cast<double>(value), comm));
  };
  const std::int64_t microbatches =
      in_all(report.batch_counts.microbatches) / (t * report.num_stages);
  const std::int64_t of_heads =
      model.family == ModelFamily::kQwen3 ? model.layers * 2 * head_width(model) : 0;
  const std::int64_t layers =
      2 * (t - 1) *
      (3 * t * rows * model.context * std::int64_t{4} +
       widths_of(model).parameter * microbatches * (cuts_rows ? shared : of_heads) +
       (cuts_rows ? 0 : (per_block * model.layers + 2) * activations));
  for (const CommOp op : {CommOp::kAllGather, CommOp::kReduceScatter})
    EXPECT_EQ(in_all(report.traffic[op].bytes_sent), cuts_rows ? of_rows : 0);
  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  const std::int64_t replicas = report.num_replicas, in_replica = t * report.num_stages;
  const std::int64_t g = widths_of(model).gradient;
  const std::int64_t gradients = num_steps * 2 * g * (replicas - 1) * (numel / replicas);
  const std::int64_t tied = model.tie_embeddings ? num_steps * 2 * g * replicas * numel : 0;
  const std::int64_t blocks = numel / replicas / kNormSlice + in_replica * (model.layers + 2);
  const std::int64_t numbers =
      num_steps * 8 * 2 * comm.size() * (2 * blocks + 3 + report.batch_counts.microbatches);
  const double sent =
      all_reduce_sum(static_cast<double>(report.traffic[CommOp::kAllReduce].bytes_sent), comm);
  EXPECT_GE(sent, static_cast<double>(layers + gradients));
  EXPECT_LE(sent, static_cast<double>(layers + gradients + tied + numbers));
}

void expect_of_stages(const TrainOptions& options, const TrainReport& report, Communicator& comm) {
  const ModelOptions& model = options.model;
  const Widths widths = widths_of(model);
  const Size whole = size_of(units_of(model), widths.alignment(), /*num_slices=*/1);
  expect_size(model, whole);
  EXPECT_EQ(report.num_parameters, whole.parameters);
  const auto of_all_ranks = [&](std::int64_t value) {
    return static_cast<std::int64_t>(all_reduce_sum(static_cast<double>(value), comm));
  };
  const bool has_copy = model.tie_embeddings && report.num_stages > 1;
  std::vector<UnitNumels> units = units_of(model);
  if (has_copy) units.back().parts = units.front().parts;
  const auto own = static_cast<std::size_t>(model.product_parts / report.num_tensor_ranks);
  std::int64_t numel = 0;
  for (std::size_t first = 0; first < units[0].parts.size(); first += own)
    numel += report.num_replicas * size_of(units, widths.alignment(), 1, first, own).aligned;
  // Another model beside the one that is trained: dpo's reference, or a teacher.
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  const bool has_teacher = objective.kind == ObjectiveKind::kSelfDistillation;
  const bool has_two =
      has_teacher || (objective.kind == ObjectiveKind::kDpo && objective.dpo.cache.empty());
  EXPECT_EQ(of_all_ranks(report.memory.live(MemoryCategory::kParameters)),
            ((has_two ? 2 : 1) * widths.parameter + (has_teacher ? widths.master : 0)) * numel);
  EXPECT_EQ(of_all_ranks(report.memory.live(MemoryCategory::kGradients)), widths.gradient * numel);
  const std::int64_t state = of_all_ranks(report.memory.live(MemoryCategory::kOptimizer));
  EXPECT_THAT(state, AnyOf((widths.master + 8) * numel, widths.master * numel, 8 * numel));

  // Every stage of a replica counts that replica's rows.
  const int t = report.num_tensor_ranks, per_replica = report.num_stages * t;
  const std::int64_t rows = of_all_ranks(report.batch_counts.rows) / per_replica;
  const std::int64_t microbatches = of_all_ranks(report.batch_counts.microbatches) / per_replica;
  const std::int64_t boundaries =
      report.num_stages * options.get<PipelineOptions>().chunks_per_stage - 1;
  const OpTraffic& sent = report.traffic[CommOp::kSend];
  const std::int64_t passes = has_two ? 3 : 2;  // a forward, a backward, the other's forward
  const std::int64_t rows_of_sample = objective.kind == ObjectiveKind::kLanguageModel ? 1 : 2;
  const std::int64_t activations =
      widths.parameter * rows * rows_of_sample * model.context * model.channels;
  const bool cuts_rows = t > 1 && options.get<TensorOptions>().is_sequence_parallel;
  EXPECT_EQ(of_all_ranks(sent.bytes_sent), (cuts_rows ? 1 : t) * passes * boundaries * activations);
  EXPECT_EQ(of_all_ranks(sent.messages), t * passes * boundaries * microbatches);
  if (t > 1) expect_sums_of_layers(options, report, activations, rows, numel, comm);
}

}  // namespace

void expect_closed_form(const TrainOptions& options, const TrainReport& report,
                        Communicator& comm) {
  const bool has_stages = options.own.find<PipelineOptions>() != nullptr;
  has_stages ? expect_of_stages(options, report, comm) : expect_of_replicas(options, report, comm);
}

}  // namespace ladder
