// On 1, 2, 3 and 4 ranks.
#include "step5_zero1/sharded_optimizer.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"

namespace ladder {
namespace {

using step5::HostileModel;
using ::testing::HasSubstr;

const OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kSgd};

class ShardedOptimizerTest : public RankTest {
 protected:
  // What this rank has sent since the last call.
  Traffic sent() {
    const Traffic now = comm_.traffic();
    Traffic since = now;
    since -= std::exchange(last_, now);
    return since;
  }

  const int num_ranks_ = size_;
  Traffic last_ = comm_.traffic();
};

// Behind step 4's hooks, with a tensor that is used twice, one and several microbatches: this
// rank's slices hold the sum of all ranks, the others what it has added to them itself. Only the
// last backward communicates, so m microbatches send as much as one.
TEST_ON_RANKS(ShardedOptimizerTest, SumsLandOnTheirOwnersAndCostWhatTheorySays) {
  HostileModel model(num_ranks_), all(num_ranks_), own(1);
  const FlatLayout& layout = model.flat.layout();
  const ShardPlan plan = plan_shards(layout, num_ranks_, rank_);
  GradientBucketer bucketer(model.grads, plan_unit_buckets(layout), comm_, start_reduce_scatter);
  Traffic theory;
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    theory += reduce_scatter_traffic(unit.numel, 4, num_ranks_, rank_);
  for (const std::int64_t m : {1, 3}) {
    model.grads.zero();
    bucketer.arm(m);
    for (std::int64_t j = 0; j < m; ++j) model.backward(rank_, HostileModel::seed_of(7, j));
    bucketer.wait();
    EXPECT_EQ(sent(), theory) << m << " microbatches";

    all.backward_of_all(num_ranks_, m, 7);
    const at::Tensor wanted = at::zeros({layout.numel});
    own.grads.zero();
    for (std::int64_t j = 0; j < m; ++j) own.backward(rank_, HostileModel::seed_of(7, j));
    for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
      const FlatTensor& tensor = layout.tensors[i];
      wanted.narrow(0, tensor.start, tensor.numel)
          .copy_(named_views(own.flat.layout(), own.grads.flat())[i].tensor.flatten());
    }
    for (const UnitSlice& slice : plan.slices) {
      wanted.narrow(0, slice.start, slice.numel)
          .copy_(all.grads.flat().narrow(0, slice.start, slice.numel));
    }
    EXPECT_TRUE(bits_equal(model.grads.flat(), wanted)) << m << " microbatches";
  }
}

TEST_ON_PROCESSES(ShardedOptimizerTest, ReducesInPlace) {
  install_memory_ledger();
  const at::Tensor unit = at::ones({num_ranks_ * 2048});
  const std::int64_t before = read_memory().total_live_bytes;
  reset_memory_peaks();
  const WorkPtr work = start_reduce_scatter(comm_, unit);
  work->wait();
  EXPECT_EQ(read_memory().peak_bytes - before, 4 * (num_ranks_ - 1) * 2048);
  EXPECT_EQ(read_memory().total_live_bytes, before);
}

TEST_ON_RANKS(ShardedOptimizerTest, RefusesAUnitThatDoesNotDivide) {
  if (num_ranks_ == 1) return;  // everything divides
  EXPECT_THAT([&] { start_reduce_scatter(comm_, at::ones({num_ranks_ + 1})); },
              ::testing::ThrowsMessage<CheckError>(HasSubstr(concat("rank ", rank_))));
}

TEST_ON_RANKS(ShardedOptimizerTest, NamesRankAndParameterThatHasNoGradient) {
  SelfCommunicator alone;
  HostileModel model(1);
  GradientBucketer bucketer(model.grads, plan_unit_buckets(model.flat.layout()), alone,
                            start_reduce_scatter);
  bucketer.arm(1);
  model.flat.leaves()[5].tensor.sum().backward();
  EXPECT_THAT([&] { bucketer.wait(); }, ::testing::ThrowsMessage<CheckError>(::testing::AllOf(
                                            HasSubstr("rank 0"), HasSubstr("'head.shift'"))));
}

TEST_ON_RANKS(ShardedOptimizerTest, NormIsThatOfOneProcess) {
  install_memory_ledger();
  const HostileModel model(num_ranks_);
  const FlatLayout& layout = model.flat.layout();
  const ShardPlan plan = plan_shards(layout, num_ranks_, rank_);
  const std::int64_t num_blocks = layout.numel / 1024;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    // Of gradients that one process has in whole, and in a layout that is padded for itself alone.
    HostileModel whole(num_ranks_), padded_less(1);
    whole.backward_of_all(num_ranks_, 1, seed);
    padded_less.backward_of_all(num_ranks_, 1, seed);
    const std::vector<at::Tensor> slices = plan.slices_of_full(whole.grads.flat());
    sent();
    reset_memory_peaks();
    const MemoryReading before = read_memory();
    const double norm = sharded_norm(slices, comm_);
    const MemoryReading after = read_memory();
    constexpr auto kCommunication = MemoryCategory::kCommunication;
    if (ranks_are_processes()) {
      EXPECT_EQ(after.peak(kCommunication) - before.live(kCommunication), 8 * num_blocks);
      EXPECT_EQ(after.peak_bytes - before.total_live_bytes, 8 * num_blocks);
    }
    EXPECT_EQ(sent(), norm_traffic(layout, num_ranks_, rank_));
    EXPECT_EQ(norm, flat_norm(layout, whole.grads.flat()));
    EXPECT_EQ(norm, flat_norm(padded_less.flat.layout(), padded_less.grads.flat()));
  }
  EXPECT_EQ(sharded_norm(plan.slices_of_full(at::zeros({layout.numel})), comm_), 0);
  EXPECT_TRUE(
      std::isnan(sharded_norm(plan.slices_of_full(at::full({layout.numel}, std::nan(""))), comm_)));
}

TEST_ON_PROCESSES(ShardedOptimizerTest, HoldsOneNthOfTheState) {
  install_memory_ledger();
  HostileModel model(num_ranks_);
  const std::int64_t numel = model.flat.layout().numel;
  const ShardPlan plan = plan_shards(model.flat.layout(), num_ranks_, rank_);
  for (const OptimizerKind kind : kKinds) {
    const MemoryReading before = read_memory();
    ShardedOptimizer optimizer(plan, plan.slices_of_full(model.flat.params()),
                               plan.slices_of_full(model.grads.flat()), {.kind = kind});
    const MemoryReading after = read_memory();
    const std::int64_t state_bytes = kind == OptimizerKind::kAdamW ? 8 * numel / num_ranks_ : 0;
    EXPECT_EQ(after.live(MemoryCategory::kOptimizer) - before.live(MemoryCategory::kOptimizer),
              state_bytes);
    EXPECT_EQ(after.total_live_bytes - before.total_live_bytes, state_bytes);
    reset_memory_peaks();
    optimizer.step(1e-3);
    EXPECT_EQ(read_memory().peak_bytes, after.total_live_bytes);
    EXPECT_EQ(sent(), Traffic()) << "a step is local";
  }
}

// So that a network card has the next gather as soon as it is done with one.
TEST_ON_RANKS(ShardedOptimizerTest, AllGathersAreInFlightAtOnce) {
  HostileModel model(num_ranks_);
  const std::unique_ptr<Communicator> agreements = comm_.split(0, rank_);
  RecordingCommunicator recording(comm_, *agreements);
  all_gather_parameters(model.flat, recording);
  recording.finish();
  const auto num_units = static_cast<int>(plan_unit_buckets(model.flat.layout()).size());
  EXPECT_GT(num_units, 1);
  EXPECT_EQ(recording.recording().most_on_their_way, num_units);
  EXPECT_EQ(recording.recording().num_on_their_way(), 0);
}

// Parameters, moments and norms of three steps, and what they send, against one process with one
// whole Optimizer.
TEST_ON_RANKS(ShardedOptimizerTest, TrainsAsOneProcessDoes) {
  for (const OptimizerKind kind : kKinds) {
    for (const double clip_norm : {0.0, 0.5}) {
      HostileModel model(num_ranks_), alone(num_ranks_);
      const FlatLayout& layout = model.flat.layout();
      const ShardPlan plan = plan_shards(layout, num_ranks_, rank_);
      const std::vector<at::Tensor> grads = plan.slices_of_full(model.grads.flat());
      const OptimizerOptions options = {.kind = kind};
      ShardedOptimizer optimizer(plan, plan.slices_of_full(model.flat.params()), grads, options);
      Optimizer whole(alone.flat, alone.grads, options);
      Traffic theory = norm_traffic(layout, num_ranks_, rank_);
      for (const GradientBucket& unit : plan_unit_buckets(layout))
        theory += all_gather_traffic(unit.numel, 4, num_ranks_, rank_);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        alone.backward_of_all(num_ranks_, 2, step);
        model.grads.flat().fill_(std::nan(""));  // what is not its own must not be read
        for (std::size_t u = 0; u < grads.size(); ++u)
          grads[u].copy_(plan.slices_of_full(alone.grads.flat())[u]);
        sent();
        const Clipping clip(sharded_norm(grads, comm_), clip_norm);
        optimizer.step(1e-2, clip.factor);
        all_gather_parameters(model.flat, comm_);
        EXPECT_EQ(sent(), theory);
        const Clipping of_whole(gradient_norm(alone.grads), clip_norm);
        EXPECT_EQ(clip.norm, of_whole.norm);
        whole.step(1e-2, of_whole.factor);
        EXPECT_TRUE(bits_equal(model.flat.params(), alone.flat.params())) << "step " << step;
      }
      for (std::size_t i = 0; i < whole.state().size(); ++i) {
        EXPECT_EQ(optimizer.state()[i].name, whole.state()[i].name);
        EXPECT_TRUE(bits_equal(optimizer.state()[i].tensor,
                               at::cat(plan.slices_of_full(whole.state()[i].tensor))));
      }
    }
  }
}

}  // namespace
}  // namespace ladder
