#include "step2_sharded_data/sharded_evaluate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/traffic_theory.hpp"
#include "common/core/stop_signal.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class ShardedEvaluate : public RankTest {
 protected:
  static Microbatches numbered(std::int64_t count) {
    std::vector<Microbatch> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back({at::full({1}, i, at::kLong), {}, 1});
    return Microbatches(std::move(list));
  }
};

// In double 1e16 + 1 is 1e16: another order of the sum, or a sum per rank, would show.
TEST_ON_RANKS(ShardedEvaluate, AddsUpInTheOrderOfTheMicrobatches) {
  const std::vector<double> sums = {1e16, 1, -1e16, 1, 1e16, -1e16, 1, 1};
  const Microbatches batches = numbered(8);
  const LossSum loss_sum = [&](const Microbatch& m) {
    return at::full({}, sums[static_cast<std::size_t>(m.tokens.item<std::int64_t>())], at::kDouble);
  };
  EXPECT_EQ(evaluate(loss_sum, batches, comm_), 2.0 / 8);
  EXPECT_EQ(evaluate(loss_sum, batches), 2.0 / 8);
}

TEST_ON_RANKS(ShardedEvaluate, EachRankRunsItsOwnMicrobatchesForward) {
  const Microbatches batches = numbered(7);
  std::int64_t num_forward = 0;
  const LossSum loss_sum = [&](const Microbatch&) {
    EXPECT_FALSE(at::GradMode::is_enabled());
    ++num_forward;
    return at::ones({});
  };
  evaluate(loss_sum, batches, comm_);
  EXPECT_EQ(num_forward, (batches.size() - rank_ + size_ - 1) / size_);
  EXPECT_TRUE(at::GradMode::is_enabled());
}

// Only the last rank is asked to stop: its forwards end, and all ranks know it.
TEST_ON_RANKS(ShardedEvaluate, AStopOfOneRankEndsIt) {
  int num_forwards = 0;
  const LossSum loss_sum = [&](const Microbatch&) {
    ++num_forwards;
    if (rank_ == size_ - 1) StopSignal::raise();
    return at::ones({});
  };
  EXPECT_EQ(evaluate(loss_sum, numbered(7), comm_), kStoppedLoss);
  if (rank_ == size_ - 1) {
    EXPECT_EQ(num_forwards, 1);
  }
  comm_.barrier();
  const StopSignal forgets;
}

TEST_ON_RANKS(ShardedEvaluate, HasNoValueWithoutATarget) {
  const LossSum loss_sum = [](const Microbatch&) { return at::full({}, 0.0); };
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({}), comm_)));
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({{{}, {}, 0}}), comm_)));
}

TEST_ON_RANKS(ShardedEvaluate, SendsOneDoublePerMicrobatchInOneAllReduce) {
  const LossSum loss_sum = [](const Microbatch&) { return at::ones({}); };
  for (const std::int64_t count : {1, 7}) {
    const Traffic sent = sent_in(comm_, [&] { evaluate(loss_sum, numbered(count), comm_); });
    EXPECT_EQ(sent, all_reduce_traffic(count, 8, size_, rank_)) << count;
  }
}

}  // namespace
}  // namespace ladder
