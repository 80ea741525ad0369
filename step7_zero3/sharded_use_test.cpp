// On 1, 2, 3 and 4 ranks.
#include "step7_zero3/sharded_use.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/stop_signal.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class ShardedUse : public RankTest {};

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

// A double for each microbatch, and a question between two forwards.
TEST_ON_RANKS(ShardedUse, AnEvaluationSendsLittle) {
  const LossSum loss_sum = [](const Microbatch& /*m*/) { return at::ones({}); };
  const Microbatches batches(std::vector<Microbatch>(7, {{}, {}, 1}));
  Traffic theory = all_reduce_traffic(7, sizeof(double), size_, rank_);
  for (std::int64_t first = size_; first < 7; first += size_)
    theory += all_reduce_traffic(1, sizeof(double), size_, rank_);
  EXPECT_EQ(sent_in(comm_, [&] { collective_evaluate(loss_sum, batches, comm_); }), theory);
}

TEST_ON_RANKS(ShardedUse, EvaluationOfNothingIsNoNumber) {
  const LossSum never = [](const Microbatch& /*m*/) -> at::Tensor {
    throw CheckError("there is no microbatch");
  };
  EXPECT_TRUE(std::isnan(collective_evaluate(never, Microbatches({}), comm_)));
}

}  // namespace
}  // namespace ladder
