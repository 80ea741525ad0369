#include "common/optim/lr_schedule.hpp"

#include <gtest/gtest.h>

namespace ladder {
namespace {

TEST(LrSchedule, WarmsUpFromOneStepsShare) {
  const LrOptions options{.lr = 0.4, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3, 10), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 4, 10), 0.4);
}

TEST(LrSchedule, CosineAndLinearEndAtMinimum) {
  LrOptions options{.schedule = LrSchedule::kCosine, .lr = 1.0, .min_lr = 0.2, .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(learning_rate(options, 2, 12), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 7, 12), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(options, 12, 12), 0.2);
  options.schedule = LrSchedule::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate(options, 7, 12), 0.6);
  EXPECT_NEAR(learning_rate(options, 4, 12), 0.84, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(options, 99, 12), 0.2);  // stays there after the end
}

TEST(LrSchedule, ConstantStays) {
  const LrOptions options{.schedule = LrSchedule::kConstant, .lr = 0.5, .min_lr = 0.1};
  for (const int step : {0, 5, 10, 11}) EXPECT_DOUBLE_EQ(learning_rate(options, step, 10), 0.5);
}

TEST(LrSchedule, WarmupLongerThanTheRunNeverArrives) {
  const LrOptions options{.lr = 1.0, .warmup_steps = 100};
  EXPECT_DOUBLE_EQ(learning_rate(options, 9, 10), 0.1);
}

}  // namespace
}  // namespace ladder
