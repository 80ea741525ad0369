// On 1, 2, 3 and 4 ranks.
#include "step5_zero1/sharded_optimizer.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"

namespace ladder {
namespace {

using step5::HostileModel;
using ::testing::HasSubstr;

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
  model.flat.leaves()[6].tensor.sum().backward();  // head.gain
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

}  // namespace
}  // namespace ladder
