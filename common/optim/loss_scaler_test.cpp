#include "common/optim/loss_scaler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

LossScaler scaler_of(double initial, std::int64_t window) {
  return LossScaler({.initial = initial, .window = window});
}

void expect_state(const LossScaler& scaler, const LossScaleState& wanted) {
  EXPECT_EQ(scaler.state().scale, wanted.scale);
  EXPECT_EQ(scaler.state().good_steps, wanted.good_steps);
  EXPECT_EQ(scaler.state().skipped_steps, wanted.skipped_steps);
  EXPECT_EQ(scaler.scale(), wanted.scale);
}

TEST(LossScaler, HalvesAndSkipsWhenTheNormIsNotFinite) {
  LossScaler scaler = scaler_of(1024, 3);
  EXPECT_FALSE(scaler.accepts(kInfinity));
  expect_state(scaler, {512, 0, 1});
  EXPECT_FALSE(scaler.accepts(kNotANumber));
  expect_state(scaler, {256, 0, 2});
}

TEST(LossScaler, AcceptsEveryFiniteNorm) {
  LossScaler scaler = scaler_of(1024, 100);
  for (const double norm : {0.0, 1e-300, 1.0, 65505.0, std::numeric_limits<double>::max()})
    EXPECT_TRUE(scaler.accepts(norm)) << norm;
  expect_state(scaler, {1024, 5, 0});
}

TEST(LossScaler, DoublesAfterExactlyAWindowOfGoodSteps) {
  for (const std::int64_t window : {1, 2, 3, 1000}) {
    LossScaler scaler = scaler_of(1024, window);
    for (const double scale : {1024, 2048, 4096}) {
      for (std::int64_t good = 0; good < window; ++good) {
        expect_state(scaler, {scale, good, 0});
        EXPECT_TRUE(scaler.accepts(1));
      }
    }
    expect_state(scaler, {8192, 0, 0});
  }
}

TEST(LossScaler, CountsGoodStepsFromTheLastOverflow) {
  LossScaler scaler = scaler_of(1024, 3);
  scaler.accepts(1);
  scaler.accepts(1);
  EXPECT_FALSE(scaler.accepts(kInfinity));
  expect_state(scaler, {512, 0, 1});
  scaler.accepts(1);
  scaler.accepts(1);
  expect_state(scaler, {512, 2, 1});
  EXPECT_TRUE(scaler.accepts(1));
  expect_state(scaler, {1024, 0, 1});
}

TEST(LossScaler, StopsGrowingBeforeTheScaleIsInfinite) {
  LossScaler scaler = scaler_of(65536, 1);
  for (int step = 0; step < 2000; ++step) EXPECT_TRUE(scaler.accepts(0));
  expect_state(scaler, {1 << 30, 0, 0});
  EXPECT_FALSE(scaler.accepts(kInfinity));
  expect_state(scaler, {1 << 29, 0, 1});
}

TEST(LossScaler, ContinuesFromAState) {
  LossScaler before = scaler_of(1024, 3);
  for (const double norm : {kInfinity, kNotANumber, 1.0, 1.0}) before.accepts(norm);
  LossScaler after = scaler_of(65536, 3);  // with another initial scale
  after.restore(before.state());
  EXPECT_EQ(after.state(), before.state());
  for (const double norm : {1.0, 1.0, kInfinity, 1.0}) {
    EXPECT_EQ(after.accepts(norm), before.accepts(norm));
    EXPECT_EQ(after.state(), before.state());
  }
  expect_state(after, {256, 1, 3});
}

// A run may be resumed with a smaller window than the good steps that it already has.
TEST(LossScaler, GrowsAfterAResumeWithASmallerWindow) {
  LossScaler scaler = scaler_of(65536, 3);
  scaler.restore({.scale = 1024, .good_steps = 7, .skipped_steps = 2});
  for (const auto& [scale, good] : {std::pair{2048, 0}, {2048, 1}, {2048, 2}, {4096, 0}}) {
    EXPECT_TRUE(scaler.accepts(1));
    expect_state(scaler, {static_cast<double>(scale), good, 2});
  }
}

// Training went on without a scale in between: it is there for a later run to go on from.
TEST(LossScaler, KeepsAScaleThatItDoesNotUse) {
  LossScaler scaler;
  scaler.restore({.scale = 1024, .good_steps = 7, .skipped_steps = 2});
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(scaler.accepts(kInfinity));
  EXPECT_EQ(scaler.state(), (LossScaleState{1024, 7, 2}));
}

// At a scale of 1 a smaller one would not help: the message says what would.
TEST(LossScaler, GivesUpAtAScaleOf1) {
  LossScaler scaler = scaler_of(2, 3);
  EXPECT_FALSE(scaler.accepts(kInfinity));
  expect_state(scaler, {1, 0, 1});
  for (const double norm : {kInfinity, kNotANumber}) {
    EXPECT_THAT(
        [&] { scaler.accepts(norm); },
        ThrowsMessage<CheckError>(
            AllOf(HasSubstr("scale of 1"), HasSubstr("steps skipped so far: 1"), HasSubstr("--lr"),
                  HasSubstr("--warmup-steps"), HasSubstr("--precision bf16"))));
  }
  expect_state(scaler, {1, 0, 1});
  EXPECT_TRUE(scaler.accepts(1));
}

TEST(LossScaler, AcceptsEverythingWhenItIsOff) {
  LossScaler scaler;
  EXPECT_FALSE(scaler.is_on());
  EXPECT_TRUE(scaler_of(1, 1).is_on());
  for (int step = 0; step < 3; ++step) {
    for (const double norm : {1.0, kInfinity, kNotANumber}) EXPECT_TRUE(scaler.accepts(norm));
  }
  expect_state(scaler, {1, 0, 0});
}

}  // namespace
}  // namespace ladder
