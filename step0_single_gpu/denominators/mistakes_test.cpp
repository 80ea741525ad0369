// Numbers small enough for paper: a model of one parameter, and microbatches whose mean losses are
// given. All that a denominator can get wrong shows in one gradient.
#include "step0_single_gpu/denominators/mistakes.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/check.hpp"

namespace ladder::lab {
namespace {

constexpr std::int64_t kWidth = 128;  // positions of a row

// A row with this many targets and this mean loss, which OneParameter finds among its tokens.
Microbatch row(std::int64_t num_targets, double mean_loss) {
  at::Tensor targets = at::full({1, kWidth}, kIgnoredTarget, at::kLong);
  targets.narrow(1, 0, num_targets).fill_(1);
  return {at::full({1, kWidth}, mean_loss), targets, num_targets};
}

// The summed loss of a microbatch is w times its targets times its mean loss, and w is 1: the
// gradient is the loss that is really trained on.
class OneParameter : public ::testing::Test {
 protected:
  OneParameter()
      : w_(at::ones({1}).set_requires_grad(true)), flat_({{"unit", {{"w", w_}}}}), grads_(flat_) {}

  LossSum loss_sum() const {
    return [this](const Microbatch& microbatch) {
      return w_.sum() * static_cast<double>(microbatch.num_targets) * microbatch.tokens[0][0];
    };
  }
  struct Result {
    double loss, gradient;
  };
  Result run(Mistake mistake, const GlobalBatch& batch) {
    grads_.zero();
    const double loss = accumulate(mistake, loss_sum(), batch, grads_);
    return {loss, w_.grad().item<double>()};
  }
  void expect(Mistake mistake, const GlobalBatch& batch, const Result& wanted) {
    const Result found = run(mistake, batch);
    EXPECT_NEAR(found.loss, wanted.loss, 1e-6) << name_of(mistake);
    EXPECT_NEAR(found.gradient, wanted.gradient, 1e-6) << name_of(mistake);
  }

  at::Tensor w_;
  FlatModel flat_;
  FlatGradients grads_;
};

// Sums 30 and 30: 60/40 = 1.5 is right, (1 + 3)/2 = 2.0 is not. The error is -cov(n, x) / mean(n),
// 10/20.
TEST_F(OneParameter, ThirtyAndTenTargetsWithMeans1And3) {
  const GlobalBatch batch = {{Microbatches({row(30, 1), row(10, 3)})}};
  expect(Mistake::kNone, batch, {1.5, 1.5});
  expect(Mistake::kMeanOfMeans, batch, {2.0, 2.0});
  expect(Mistake::kScaledAgain, batch, {1.5, 1.5});   // there is one flush,
  expect(Mistake::kLocalWeights, batch, {1.5, 1.5});  // and one rank
  expect(Mistake::kValidationMeans, batch, {1.5, 1.5});
  expect(Mistake::kPadding, batch, {60.0 / 256, 60.0 / 256});
}

// Sums 60 and 420: 480/160 = 3.0 is right. The ranks' own means average to 2.5, and the log says
// 3.0.
TEST_F(OneParameter, RanksWith40And120TargetsAndMeansOneAndAHalfAndThreeAndAHalf) {
  const GlobalBatch batch = {{Microbatches({row(40, 1.5)})}, {Microbatches({row(120, 3.5)})}};
  expect(Mistake::kNone, batch, {3.0, 3.0});
  expect(Mistake::kLocalWeights, batch, {3.0, 2.5});
  expect(Mistake::kMeanOfMeans, batch, {2.5, 2.5});
  expect(Mistake::kScaledAgain, batch, {3.0, 3.0});
  expect(Mistake::kValidationMeans, batch, {3.0, 3.0});
  expect(Mistake::kPadding, batch, {480.0 / 256, 480.0 / 256});
}

// Flushes that are all alike count 1, 1/2, 1/4, … from the last one back. The loss stays right.
TEST_F(OneParameter, EarlierFlushesCountLess) {
  const Microbatches flush({row(30, 1), row(10, 3)});
  for (const std::size_t num_ranks : {1u, 2u}) {
    const auto batch = [&](std::size_t num_flushes) {
      return GlobalBatch(num_ranks, std::vector<Microbatches>(num_flushes, flush));
    };
    expect(Mistake::kScaledAgain, batch(1), {1.5, 1.5});
    expect(Mistake::kScaledAgain, batch(2), {1.5, 1.5 * (1 + 0.5) / 2});  // 1.125
    expect(Mistake::kScaledAgain, batch(3), {1.5, 1.5 * (1 + 0.5 + 0.25) / 3});
    expect(Mistake::kNone, batch(3), {1.5, 1.5});
  }
}

TEST_F(OneParameter, ValidationIsAMeanOfMeansInOneMistakeOnly) {
  const Microbatches batches({row(30, 1), row(10, 3)});
  for (const Mistake mistake : kAllMistakes) {
    double wanted = 1.5;
    if (mistake == Mistake::kValidationMeans) wanted = 2.0;
    if (mistake == Mistake::kPadding) wanted = 60.0 / 256;
    EXPECT_NEAR(evaluate(mistake, loss_sum(), batches), wanted, 1e-6) << name_of(mistake);
  }
}

// Nothing is added for it, except where 0 is divided by 0.
TEST_F(OneParameter, AMicrobatchOfPaddingContributesNothing) {
  const GlobalBatch batch = {{Microbatches({row(30, 1), row(0, 7)})},
                             {Microbatches({row(0, 7), row(10, 3)})}};
  expect(Mistake::kNone, batch, {1.5, 1.5});
  expect(Mistake::kLocalWeights, batch, {1.5, 2.0});
  const Result means = run(Mistake::kMeanOfMeans, batch);
  EXPECT_TRUE(std::isnan(means.loss) && std::isnan(means.gradient));
}

TEST_F(OneParameter, AStepWithoutTargetsIsAnError) {
  for (const Mistake mistake : kAllMistakes) {
    EXPECT_THROW(run(mistake, {{Microbatches({row(0, 7)})}}), CheckError) << name_of(mistake);
  }
}

// DPO over answer tokens, as engines compute it that give each microbatch a loss and a weight: the
// mean over its pairs counts by all of its tokens.
at::Tensor sum_by_microbatch(const at::Tensor& losses, const at::Tensor& tokens) {
  return losses.mean() * tokens.sum();
}

// README.md's example: pairs with 30 and 10 answer tokens, and losses of 1 and 3.
TEST(PairsOverTokens, DependOnTheCutIfAMicrobatchHasOneWeight) {
  const at::Tensor losses = at::tensor({1.0, 3.0}), tokens = at::tensor({30.0, 10.0});
  const double together = sum_by_microbatch(losses, tokens).item<double>();
  double apart = 0;
  for (const std::int64_t pair : {0, 1})
    apart += sum_by_microbatch(losses.narrow(0, pair, 1), tokens.narrow(0, pair, 1)).item<double>();
  EXPECT_NEAR(together / 40, 2.0, 1e-6);
  EXPECT_NEAR(apart / 40, 1.5, 1e-6);
  EXPECT_NEAR((losses * tokens).sum().item<double>() / 40, 1.5, 1e-6);  // in any cut
}

TEST(Names, LeadBackToTheMistake) {
  for (const Mistake mistake : kAllMistakes) EXPECT_EQ(mistake_named(name_of(mistake)), mistake);
  EXPECT_EQ(mistake_named("mean"), std::nullopt);
}

}  // namespace
}  // namespace ladder::lab
