// A real model: every mistake is as wrong as the algebra says, for unequal microbatches and for
// equal ones. No optimizer: these are the raw gradients of the first step.
#include <gtest/gtest.h>

#include "common/testing/closeness.hpp"
#include "step0_single_gpu/denominators/lab_testing.hpp"

namespace ladder::lab {
namespace {

const Corpus& windows() {
  static const Corpus corpus(Rows::kWindows);
  return corpus;
}

// Sums in fp32 against sums in double.
constexpr double kRounding = 1e-5;

// The gradient is the one that the weights give, and far from the right one.
TEST(Algebra, GradientsAndLossesAreThoseOfTheWeights) {
  for (const Cut& cut : {Cut{}, Cut{3, 3, 2, 1}, Cut{2, 2, 3, 1}}) {
    Laboratory lab({.cut = cut}, documents());
    const GlobalBatch batch = lab.next();
    const std::vector<Share> shares = shares_of(lab.loss_sum(), batch, lab.grads());
    const at::Tensor right = gradient_of(Mistake::kNone, shares, cut);
    for (const Mistake mistake : kAllMistakes) {
      const at::Tensor wanted = gradient_of(mistake, shares, cut);
      lab.grads().zero();
      const double loss = accumulate(mistake, lab.loss_sum(), batch, lab.grads());
      EXPECT_TRUE(close_in_norm(lab.grads().flat().to(at::kDouble), wanted, kRounding))
          << name_of(mistake);
      EXPECT_NEAR(loss, loss_of_step(mistake, shares, cut), kRounding) << name_of(mistake);
      const bool is_right = mistake == Mistake::kNone || mistake == Mistake::kValidationMeans;
      const double error = relative_distance(wanted, right);
      EXPECT_EQ(is_right, error < 100 * kRounding) << name_of(mistake) << ": " << error;
    }
  }
}

// A microbatch, or all of a rank: n, and the gradient x of its mean loss.
struct Part {
  double targets;
  at::Tensor mean_gradient;
};

// The mean of means minus the mean over all targets is -cov(n, x) / mean(n).
at::Tensor error_by_covariance(const std::vector<Part>& parts) {
  const auto count = static_cast<double>(parts.size());
  double mean_n = 0;
  at::Tensor mean_x = parts.front().mean_gradient * 0, mean_nx = mean_x;
  for (const Part& part : parts) {
    mean_n += part.targets / count;
    mean_x = mean_x + part.mean_gradient / count;
    mean_nx = mean_nx + part.mean_gradient * (part.targets / count);
  }
  return (mean_n * mean_x - mean_nx) / mean_n;
}

TEST(Algebra, TheErrorOfAMeanOfMeansIsACovariance) {
  const Cut cut;
  Laboratory lab({.cut = cut}, documents());
  const GlobalBatch batch = lab.next();
  const std::vector<Share> shares = shares_of(lab.loss_sum(), batch, lab.grads());
  std::vector<Part> microbatches, ranks(2);
  for (const Share& share : shares) {
    microbatches.push_back({share.targets, share.gradient / share.targets});
    Part& rank = ranks[share.rank];
    rank.targets += share.targets;
    rank.mean_gradient =
        rank.mean_gradient.defined() ? rank.mean_gradient + share.gradient : share.gradient;
  }
  for (Part& rank : ranks) rank.mean_gradient = rank.mean_gradient / rank.targets;
  const at::Tensor right = gradient_from(Mistake::kNone, lab, batch);
  const at::Tensor means = gradient_from(Mistake::kMeanOfMeans, lab, batch) - right;
  const at::Tensor local = gradient_from(Mistake::kLocalWeights, lab, batch) - right;
  EXPECT_TRUE(close_in_norm(means, error_by_covariance(microbatches), 1e-3));
  EXPECT_TRUE(close_in_norm(local, error_by_covariance(ranks), 1e-3));
}

// Windows have 256 targets each, so a mean of means is the mean; only scaling twice stays wrong.
TEST(EqualMicrobatches, ForgiveAllButScalingTwice) {
  for (const Cut& cut : {Cut{}, Cut{2, 1, 4, 1}}) {
    Laboratory lab({.cut = cut}, windows());
    const GlobalBatch batch = lab.next();
    const at::Tensor right = gradient_from(Mistake::kNone, lab, batch);
    for (const Mistake mistake : kAllMistakes) {
      const double error = relative_distance(gradient_from(mistake, lab, batch), right);
      const bool is_wrong = mistake == Mistake::kScaledAgain && cut.flushes > 1;
      EXPECT_EQ(is_wrong, error > kRounding) << name_of(mistake) << ": " << error;
    }
  }
  Laboratory lab({}, windows());
  const double right = evaluate(Mistake::kNone, lab.loss_sum(), lab.validation());
  for (const Mistake mistake : {Mistake::kValidationMeans, Mistake::kPadding})
    EXPECT_NEAR(evaluate(mistake, lab.loss_sum(), lab.validation()), right, kRounding);
}

// Σ over microbatches of scale times the gradient of the mean loss, as engines without one
// denominator compute it.
at::Tensor scaled_means(Laboratory& lab, const GlobalBatch& batch, double scale) {
  lab.grads().zero();
  for (const auto& flushes : batch) {
    for (const Microbatches& flush : flushes) {
      for (const Microbatch& m : flush)
        (lab.loss_sum()(m) / static_cast<double>(m.num_targets) * scale).backward();
    }
  }
  return lab.grads().flat().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

// 32 rows: through a pipeline in 4 flushes of 4 microbatches, or without one in 4 microbatches.
constexpr Cut kPipeline = {.ranks = 1, .flushes = 4, .microbatches = 4, .rows = 2};
constexpr Cut kNoPipeline = {.ranks = 1, .flushes = 4, .microbatches = 1, .rows = 8};

TEST(LossScale, FollowsFromOneDenominatorIfMicrobatchesAreEqual) {
  Laboratory pipeline({.cut = kPipeline}, windows()), plain({.cut = kNoPipeline}, windows());
  const GlobalBatch cut_for_pipeline = pipeline.next(), cut_for_plain = plain.next();
  const at::Tensor right = gradient_from(Mistake::kNone, pipeline, cut_for_pipeline);
  EXPECT_TRUE(close_in_norm(gradient_from(Mistake::kNone, plain, cut_for_plain), right, kRounding));
  EXPECT_TRUE(close_in_norm(scaled_means(pipeline, cut_for_pipeline, 1.0 / 16), right, kRounding));
  EXPECT_TRUE(close_in_norm(scaled_means(plain, cut_for_plain, 1.0 / 4), right, kRounding));
}

// README.md has these figures: the same rows, cut in two ways, have one right gradient and two
// wrong ones.
TEST(LossScale, IsWrongByThisMuchIfTheyAreNot) {
  Laboratory pipeline({.cut = kPipeline}, documents()), plain({.cut = kNoPipeline}, documents());
  const GlobalBatch cut_for_pipeline = pipeline.next(), cut_for_plain = plain.next();
  const at::Tensor right = gradient_from(Mistake::kNone, pipeline, cut_for_pipeline);
  EXPECT_TRUE(close_in_norm(gradient_from(Mistake::kNone, plain, cut_for_plain), right, kRounding));
  const at::Tensor scaled = scaled_means(pipeline, cut_for_pipeline, 1.0 / 16);
  const at::Tensor scaled_plain = scaled_means(plain, cut_for_plain, 1.0 / 4);
  EXPECT_NEAR(relative_distance(scaled, right), 0.0208, 0.0002);
  EXPECT_NEAR(relative_distance(scaled_plain, right), 0.0189, 0.0002);
  EXPECT_NEAR(relative_distance(scaled, scaled_plain), 0.0051, 0.0002);
  // And it is what the first mistake computes.
  EXPECT_TRUE(close_in_norm(gradient_from(Mistake::kMeanOfMeans, pipeline, cut_for_pipeline),
                            scaled, kRounding));
}

}  // namespace
}  // namespace ladder::lab
