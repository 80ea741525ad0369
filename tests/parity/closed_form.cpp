#include "tests/parity/closed_form.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ladder {
namespace {

constexpr std::int64_t kElementBytes = 4;
constexpr std::int64_t kAlignment = 16;    // elements: 64 bytes
constexpr std::int64_t kNormSlice = 1024;  // elements: a rank's slice consists of such blocks

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  const std::int64_t rest = value % multiple;
  return rest == 0 ? value : value - rest + multiple;
}

// The elements of each tensor, unit by unit.
std::vector<std::vector<std::int64_t>> tensors_of(const GptOptions& model) {
  const std::int64_t C = model.channels, V = model.vocab_size;
  std::vector<std::vector<std::int64_t>> units = {{V * C, model.context * C}};
  for (std::int64_t i = 0; i < model.layers; ++i)
    units.push_back({C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C});
  units.push_back({C, C});
  if (!model.tie_embeddings) units.back().push_back(V * C);
  return units;
}

// The elements of a model, or of its blocks alone.
struct Size {
  std::int64_t parameters = 0;
  std::int64_t aligned = 0;  // with padded tensors
  std::int64_t sliced = 0;   // with padded units as well
};

Size size_of(const std::vector<std::vector<std::int64_t>>& units, int num_ranks) {
  Size size;
  for (const std::vector<std::int64_t>& unit : units) {
    std::int64_t aligned = 0;
    for (const std::int64_t numel : unit) {
      size.parameters += numel;
      aligned += round_up(numel, kAlignment);
    }
    size.aligned += aligned;
    size.sliced += round_up(aligned, num_ranks * kNormSlice);
  }
  return size;
}

void expect_size(const GptOptions& model, const Size& size) {
  const std::int64_t C = model.channels;
  const std::int64_t embeddings = (model.tie_embeddings ? 1 : 2) * model.vocab_size * C;
  EXPECT_EQ(size.parameters,
            embeddings + model.context * C + model.layers * (12 * C * C + 13 * C) + 2 * C);
}

// ZeRO's stages 1, 2 and 3; 0 means none.
int zero_stage(const std::string& step) {
  return step < "step5" ? 0 : step[4] - '4';
}

void expect_held(const Size& size, int zero, int num_ranks, const TrainReport& report) {
  const std::int64_t numel = zero == 0 ? size.aligned : size.sliced;
  const auto bytes = [&](int first_stage_that_cuts) {
    return kElementBytes * numel / (zero >= first_stage_that_cuts ? num_ranks : 1);
  };
  EXPECT_EQ(report.num_parameters, size.parameters);
  EXPECT_EQ(report.memory.live(MemoryCategory::kParameters), bytes(3));
  EXPECT_EQ(report.memory.live(MemoryCategory::kGradients), bytes(2));
  const std::int64_t moments = report.memory.live(MemoryCategory::kOptimizer);
  EXPECT_TRUE(moments == 2 * bytes(1) || moments == 0) << moments;  // AdamW's, or SGD's
}

}  // namespace

void expect_closed_form(const GptOptions& model, const std::string& step, const TrainReport& report,
                        Communicator& comm) {
  const std::vector<std::vector<std::int64_t>> units = tensors_of(model);
  const Size whole = size_of(units, comm.size());
  const Size blocks = size_of({units.begin() + 1, units.end() - 1}, comm.size());
  const int zero = zero_stage(step);
  expect_size(model, whole);
  expect_held(whole, zero, comm.size(), report);

  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  const std::int64_t num_microbatches = report.batch_counts.microbatches;
  // Elements that pass through a reduce_scatter or an all_gather; an all-reduce counts twice.
  const auto num_moved = [&](std::int64_t of_whole, std::int64_t of_blocks) {
    if (zero == 2) return of_whole * (num_microbatches + num_steps);
    if (zero == 3) return (2 * of_whole + of_blocks) * num_microbatches;
    return of_whole * 2 * num_steps;
  };
  // Doubles: one sum per block of a norm (step 7 computes two norms), and three numbers per step.
  const std::int64_t num_norms = zero == 0 ? 0 : zero == 3 ? 2 : 1;
  const std::int64_t numbers = num_steps * 8 * (num_norms * whole.sliced / kNormSlice + 2 * 3);
  const std::int64_t least = kElementBytes * num_moved(whole.parameters, blocks.parameters);
  const std::int64_t most = zero == 0 ? kElementBytes * num_moved(whole.aligned, blocks.aligned)
                                      : kElementBytes * num_moved(whole.sliced, blocks.sliced);
  const double sent = all_reduce_sum(static_cast<double>(report.traffic.bytes_sent()), comm);
  EXPECT_GE(sent, static_cast<double>(least * (comm.size() - 1)));
  EXPECT_LE(sent, static_cast<double>((most + numbers) * (comm.size() - 1)));
}

void expect_closed_form_of_pipeline(const TrainOptions& options, const TrainReport& report,
                                    Communicator& comm) {
  const GptOptions& model = options.model;
  const Size whole = size_of(tensors_of(model), /*num_ranks=*/1);
  expect_size(model, whole);
  EXPECT_EQ(report.num_parameters, whole.parameters);
  const auto of_all_ranks = [&](std::int64_t value) {
    return static_cast<std::int64_t>(all_reduce_sum(static_cast<double>(value), comm));
  };
  const bool has_copy = model.tie_embeddings && report.num_stages > 1;
  const std::int64_t copy = round_up(model.vocab_size * model.channels, kAlignment);
  const std::int64_t bytes =
      report.num_replicas * kElementBytes * (whole.aligned + (has_copy ? copy : 0));
  // Another model beside the one that is trained: dpo's reference, or a teacher.
  const ObjectiveOptions& objective = options.objective;
  const bool has_two = objective.kind == ObjectiveKind::kSelfDistillation ||
                       (objective.kind == ObjectiveKind::kDpo && objective.dpo.cache.empty());
  EXPECT_EQ(of_all_ranks(report.memory.live(MemoryCategory::kParameters)),
            (has_two ? 2 : 1) * bytes);
  EXPECT_EQ(of_all_ranks(report.memory.live(MemoryCategory::kGradients)), bytes);
  const std::int64_t moments = of_all_ranks(report.memory.live(MemoryCategory::kOptimizer));
  EXPECT_TRUE(moments == 2 * bytes || moments == 0) << moments;

  // Every stage of a replica counts that replica's rows.
  const std::int64_t rows = of_all_ranks(report.batch_counts.rows) / report.num_stages;
  const std::int64_t microbatches =
      of_all_ranks(report.batch_counts.microbatches) / report.num_stages;
  const std::int64_t boundaries = report.num_stages * options.pipeline.chunks_per_stage - 1;
  const OpTraffic& sent = report.traffic[CommOp::kSend];
  const std::int64_t passes = has_two ? 3 : 2;  // a forward, a backward, the other's forward
  const std::int64_t rows_of_sample = objective.kind == ObjectiveKind::kLanguageModel ? 1 : 2;
  EXPECT_EQ(of_all_ranks(sent.bytes_sent), passes * kElementBytes * boundaries * rows *
                                               rows_of_sample * model.context * model.channels);
  EXPECT_EQ(of_all_ranks(sent.messages), passes * boundaries * microbatches);
}

void expect_closed_form_of_diloco(const TrainOptions& options, const TrainReport& report,
                                  Communicator& comm) {
  const Size whole = size_of(tensors_of(options.model), /*num_ranks=*/1);
  const DilocoOptions& diloco = options.diloco;
  const std::int64_t bytes = kElementBytes * whole.aligned;
  expect_size(options.model, whole);
  EXPECT_EQ(report.num_parameters, whole.parameters);
  EXPECT_EQ(report.memory.live(MemoryCategory::kParameters), 2 * bytes);
  const bool has_moments = options.optimizer.kind == OptimizerKind::kAdamW;
  EXPECT_EQ(report.memory.live(MemoryCategory::kOptimizer), (has_moments ? 3 : 1) * bytes);
  if (diloco.sync_delay == 0) {
    EXPECT_EQ(report.memory.live(MemoryCategory::kGradients), bytes);
  }

  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  if (report.first_step % diloco.sync_every != 0 || num_steps % diloco.sync_every != 0) return;
  const std::int64_t num_cycles = num_steps / diloco.sync_every;
  const std::int64_t least = 2 * kElementBytes * whole.parameters * num_cycles;
  const std::int64_t most = 2 * bytes * num_cycles;
  const std::int64_t records = 2 * 8 * 5 * num_steps;  // four numbers a step, and one per message
  const double sent = all_reduce_sum(static_cast<double>(report.traffic.bytes_sent()), comm);
  EXPECT_GE(sent, static_cast<double>(least * (comm.size() - 1)));
  EXPECT_LE(sent, static_cast<double>((most + records) * (comm.size() - 1)));
}

}  // namespace ladder
