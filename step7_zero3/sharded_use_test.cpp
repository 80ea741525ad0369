// On 1, 2, 3 and 4 ranks.
#include "step7_zero3/sharded_use.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/data/batch_stream.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/generate.hpp"
#include "common/train/stop_signal.hpp"
#include "step5_zero1/sharded_optimizer.hpp"

namespace ladder {
namespace {

constexpr ModelOptions kShape = {
    .vocab_size = 258, .context = 16, .layers = 2, .heads = 2, .channels = 16};

class ShardedUse : public RankTest {
 protected:
  ShardedUse() { install_memory_ledger(); }
  // Documents of different lengths, three a microbatch.
  BatchStream stream(std::int64_t num_rows) const {
    return BatchStream({.source = documents_,
                        .validation_source = documents_,
                        .rows = Rows::kDocuments,
                        .microbatch_size = 3,
                        .context = 16,
                        .validation_samples = num_rows},
                       whole_data(Tail::kDrop));
  }

  TempFolder folder_;
  const std::string documents_ = folder_.write("documents.jsonl", [] {
    std::string lines;
    for (std::size_t i = 0; i < 20; ++i)
      lines += concat("{\"context\": \"", i, std::string(i * 7 % 13, 'x'), "\"}\n");
    return lines;
  }());
};

// To the bit, with 1, 2, 4 and 7 microbatches: fewer than ranks, and not a multiple of them. Ranks
// that have none left gather with the others.
TEST_ON_RANKS(ShardedUse, EvaluationIsThatOfOneProcess) {
  const Model whole = build_layers(kShape, 1);
  const std::int64_t before = read_memory().live(MemoryCategory::kParameters);
  ShardedModel model(layer_builder(kShape, 1), /*prefetch=*/1, comm_);
  Traffic forward;
  for (const FlatUnit& unit : model.plan().layout.units)
    forward += all_gather_traffic(unit.numel, 4, comm_.size(), comm_.rank());

  for (const std::int64_t num_rows : {3, 4, 12, 20}) {
    const Microbatches batches = stream(num_rows).validation();
    const Traffic traffic_before = comm_.traffic();
    const double loss = collective_evaluate(loss_of(model, kNextToken), batches, comm_);
    EXPECT_GT(loss, 5.0);
    EXPECT_EQ(loss, evaluate(loss_of(whole, kNextToken), batches)) << num_rows << " rows";

    Traffic theory = forward, sent = comm_.traffic();
    theory *= (batches.size() + comm_.size() - 1) / comm_.size();
    theory += all_reduce_traffic(batches.size(), sizeof(double), comm_.size(), comm_.rank());
    for (std::int64_t first = comm_.size(); first < batches.size(); first += comm_.size())
      theory += all_reduce_traffic(1, sizeof(double), comm_.size(), comm_.rank());  // go on?
    EXPECT_EQ(sent -= traffic_before, theory) << num_rows << " rows";
    if (ranks_are_processes()) {
      EXPECT_EQ(read_memory().live(MemoryCategory::kParameters) - before, 4 * model.plan().numel);
    }
  }
}

TEST_ON_RANKS(ShardedUse, AStopOfOneRankEndsAnEvaluation) {
  int num_forwards = 0;
  const LossSum loss_sum = [&](const Microbatch& /*m*/) {
    ++num_forwards;
    if (comm_.rank() == comm_.size() - 1) StopSignal::raise();
    return at::ones({});
  };
  const std::vector<Microbatch> list(20, {{}, {}, 1});
  EXPECT_EQ(collective_evaluate(loss_sum, Microbatches(list), comm_), kStoppedLoss);
  EXPECT_EQ(num_forwards, 1);
  comm_.barrier();
  const StopSignal forgets;
}

TEST_ON_RANKS(ShardedUse, EvaluationOfNothingIsNoNumber) {
  const LossSum never = [](const Microbatch& /*m*/) -> at::Tensor {
    throw CheckError("there is no microbatch");
  };
  EXPECT_TRUE(std::isnan(collective_evaluate(never, Microbatches({}), comm_)));
}

TEST_ON_RANKS(ShardedUse, AllRanksWriteWhatTheWholeModelWrites) {
  const Model whole = build_layers(kShape, 2);
  ShardedModel model(layer_builder(kShape, 2), /*prefetch=*/1, comm_);
  TrainOptions options;
  options.model = kShape;
  options.seed = 3;
  options.output.sample = "SELECT";
  const std::string text = generate(model, options);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text, generate(whole, options));
}

// What rank 0 sees of a checkpoint is the whole model; what a rank takes from one is its slices.
TEST_ON_RANKS(ShardedUse, StateIsThatOfTheWholeModel) {
  const Model whole = build_layers(kShape, 1);
  std::map<std::string, at::Tensor> wanted;
  for (const Unit& unit : whole.units()) {
    for (const auto& [name, tensor] : unit.tensors) wanted[name] = tensor.detach();
  }
  const auto state_of = [&](const ShardedModel& model, const auto& use) {
    const at::Tensor grads = at::zeros_like(model.param_shard());
    ShardedOptimizer optimizer(model.plan(), model.plan().slices_of_shard(model.param_shard()),
                               model.plan().slices_of_shard(grads), {});
    BatchStream batches = stream(3);
    use(sharded_state(model, optimizer, batches, comm_));
  };

  const ShardedModel model(layer_builder(kShape, 1), 1, comm_);
  state_of(model, [&](const TrainState& state) {
    EXPECT_EQ(state.parameters.stored.size(), wanted.size());
    EXPECT_EQ(state.optimizer.stored.size(), 2 * wanted.size());
    std::size_t num_visited = 0;
    state.parameters.for_each([&](const std::string& name, const at::Tensor& values) {
      EXPECT_TRUE(bits_equal(values, wanted.at(name))) << name;
      ++num_visited;
    });
    EXPECT_EQ(num_visited, comm_.rank() == 0 ? wanted.size() : 0);

    // Rank 0 holds one unit at a time on top of its shard, and the others hold nothing.
    std::int64_t largest = 0;
    for (const FlatUnit& unit : model.plan().layout.units) largest = std::max(largest, unit.numel);
    reset_memory_peaks();
    const std::int64_t live = read_memory().total_live_bytes;
    state.parameters.for_each([](const std::string& /*name*/, const at::Tensor& /*values*/) {});
    if (ranks_are_processes()) {
      EXPECT_EQ(read_memory().peak_bytes - live, comm_.rank() == 0 ? 4 * largest : 0);
    }
  });

  const ShardedModel other(layer_builder(kShape, 9), 1, comm_);
  EXPECT_FALSE(other.param_shard().equal(model.param_shard()));
  state_of(other, [&](const TrainState& state) {
    for (const auto& [name, values] : wanted) {
      state.parameters.fill(
          name, [&, &source = values](const std::string& /*name*/, const at::Tensor& place) {
            place.copy_(source);
          });
    }
  });
  EXPECT_TRUE(bits_equal(other.param_shard(), model.param_shard()));
}

}  // namespace
}  // namespace ladder
