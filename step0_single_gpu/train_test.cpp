#include "step0_single_gpu/train.hpp"
#include "common/comm/self_communicator.hpp"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder {
namespace {

// A model and a text so small that a step takes a millisecond, and an epoch a few steps.
class Step0Test : public ::testing::Test {
 protected:
  Step0Test() {
    at::set_num_threads(1);
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += "the quick brown fox number " + std::to_string(i * i) + " jumps; ";
    options_.data.source = folder_.write("text.txt", text);
    options_.data.microbatch_size = 3;
    options_.data.num_microbatches = 2;
    options_.model = {.context = 16, .layers = 2, .heads = 2, .channels = 20};
    options_.num_steps = 40;
    options_.lr.warmup_steps = 5;
    options_.lr.lr = 1e-2;
    options_.output.is_quiet = true;
  }

  TrainReport train(TrainOptions options) {
    finalize(options);
    SelfCommunicator alone;
    return step0::train(options, alone);
  }

  TempFolder folder_;
  TrainOptions options_;
};

TEST_F(Step0Test, LearnsOneBatchByHeart) {
  options_.data.overfit_one_batch = true;
  options_.num_steps = 300;
  const TrainReport report = train(options_);
  EXPECT_GT(report.losses.front(), 5.0);
  EXPECT_LT(report.losses.back(), 0.05);
}

TEST_F(Step0Test, ClippingBoundsTheStepNotTheReport) {
  options_.optimizer = {.kind = OptimizerKind::kSgd, .weight_decay = 0};
  options_.lr = {.schedule = LrSchedule::kConstant, .lr = 1.0};
  options_.num_steps = 1;
  options_.clip_norm = 0.01;
  const TrainReport clipped = train(options_);
  options_.clip_norm = 0;
  const TrainReport free = train(options_);
  EXPECT_EQ(clipped.grad_norms, free.grad_norms);
  EXPECT_GT(clipped.grad_norms[0], 0.1);
  EXPECT_NE(clipped.param_hash, free.param_hash);
}

// Clipped to a norm of 2^-27, gradients would vanish in fp16. The optimizer has them in fp32 by
// then, so no bit depends on whether clipping or the learning rate makes a step small. All steps
// share this: no parity test sees it.
TEST_F(Step0Test, ClippingLosesNoGradientIn16Bits) {
  options_.model.precision = {NumberFormat::kFp16, NumberFormat::kFp16};
  options_.loss_scale.initial = 1024;
  options_.optimizer = {.kind = OptimizerKind::kSgd, .weight_decay = 0};
  options_.num_steps = 3;
  const auto hash_with = [&](double clip_norm, double lr) {
    options_.clip_norm = clip_norm;
    options_.lr = {.schedule = LrSchedule::kConstant, .lr = lr};
    const TrainReport report = train(options_);
    EXPECT_EQ(report.skipped_steps, 0);
    return report.param_hash;
  };
  const std::string wanted = hash_with(0x1p-4, 1);
  EXPECT_EQ(hash_with(0x1p-27, 0x1p23), wanted);
  EXPECT_NE(hash_with(0x1p-27, 0x1p22), wanted);
}

// Sums over the ranks that it plays are held as well, which with small microbatches are most of it.
TEST_F(Step0Test, AnOracleHoldsAtMostWhatTheorySays) {
  options_.data.microbatch_size = 1;
  options_.model.channels = 64;
  options_.num_steps = 3;
  options_.set<OracleOptions>().simulate_ranks = 5;
  install_memory_ledger();
  const MemoryReading before = read_memory();
  reset_memory_peaks();
  train(options_);
  const std::int64_t most =
      step0::state_bytes(options_, 1, 0).total() + step0::working_bytes(options_, 1, 0);
  EXPECT_LE(read_memory().peak_bytes - before.total_live_bytes, most);
}

}  // namespace
}  // namespace ladder
