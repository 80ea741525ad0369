#include "step0_single_gpu/evaluate.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/train/stop_signal.hpp"

namespace ladder {
namespace {

TEST(Evaluate, HasOneDenominatorAndLeavesNoGradient) {
  const at::Tensor w = at::ones({}).set_requires_grad(true);
  const LossSum loss_sum = [&](const Microbatch& microbatch) {  // mean losses 1 and 3
    return w * (microbatch.num_targets == 30 ? 1.0 * 30 : 3.0 * 10);
  };
  const Microbatches batches({{{}, {}, 30}, {{}, {}, 10}});
  EXPECT_DOUBLE_EQ(evaluate(loss_sum, batches), 1.5);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({}))));
}

TEST(Evaluate, AStopEndsIt) {
  const StopSignal stop;
  int num_forwards = 0;
  const LossSum loss_sum = [&](const Microbatch&) {
    if (++num_forwards == 2) StopSignal::raise();
    return at::ones({});
  };
  EXPECT_EQ(evaluate(loss_sum, Microbatches({{{}, {}, 1}, {{}, {}, 1}, {{}, {}, 1}})),
            kStoppedLoss);
  EXPECT_EQ(num_forwards, 2);
}

}  // namespace
}  // namespace ladder
