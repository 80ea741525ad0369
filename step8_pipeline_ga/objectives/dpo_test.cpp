#include "step8_pipeline_ga/objectives/dpo.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

// ---- The definitions once more, in double precision, pair by pair

double log_sigmoid(double x) {
  return -std::log1p(std::exp(-x));
}

struct Pair {
  double chosen, rejected, reference_chosen, reference_rejected;
};

double loss_of_pair(const Pair& p, double beta, double smoothing) {
  const double z = (p.chosen - p.rejected) - (p.reference_chosen - p.reference_rejected);
  return -(1 - smoothing) * log_sigmoid(beta * z) - smoothing * log_sigmoid(-beta * z);
}

at::Tensor doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

// The numbers of the lesson.
TEST(Dpo, KnownValues) {
  const PairScores scores =
      score_pairs(doubles({-20, 0, -5, -1, -5, 0}), doubles({-20, -1, -1, -1, -1, -1}), {});
  const double losses[] = {0.693147, 0.474077, 0.974077}, chosen[] = {0, 0.1, -0.4};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(scores.loss[i].item<double>(), losses[i], 1e-6);
    EXPECT_NEAR(scores.chosen_reward[i].item<double>(), chosen[i], 1e-12);
  }
}

TEST(Dpo, RefusesHalfAPair) {
  expect_throws<CheckError>([] { score_pairs(at::zeros({3}), at::zeros({3}), {}); }, {"[3]"});
  expect_throws<CheckError>([] { score_pairs(at::zeros({4}), at::zeros({2}), {}); }, {"[2]"});
}

// ---- From outputs of a model

constexpr std::int64_t kVocabulary = 5;

// Two pairs with answers of 1, 3, 2 and 1 tokens.
Microbatch two_pairs(at::ScalarType dtype) {
  const std::int64_t none = kIgnoredTarget;
  const std::vector<std::int64_t> values = {none, none, 2,    none,  //
                                            none, 1,    4,    0,     //
                                            none, 3,    3,    none,  //
                                            none, none, none, 1};
  const at::Tensor targets = at::tensor(values, at::kLong).view({4, 4});
  Microbatch microbatch = {at::zeros({4, 4}, at::kLong), targets, 7, 2, {10, 11}};
  microbatch.second_model_output = doubles({-3, -6, -2.5, -1}).to(dtype);
  return microbatch;
}

at::Tensor outputs(at::ScalarType dtype) {
  Random random(2);
  const at::Tensor logits = at::empty({4, 4, kVocabulary}, dtype);
  for (std::int64_t i = 0; i < logits.numel(); ++i)
    logits.view({-1})[i].fill_(4 * random.uniform() - 2);
  return logits;
}

double log_prob_of_row(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor log_probs = logits.log_softmax(1);
  double sum = 0;
  for (std::int64_t t = 0; t < targets.numel(); ++t) {
    const std::int64_t target = targets[t].item<std::int64_t>();
    if (target != kIgnoredTarget) sum += log_probs[t][target].item<double>();
  }
  return sum;
}

TEST(Dpo, OnlyTokensOfAnswersCount) {
  const Microbatch microbatch = two_pairs(at::kDouble);
  const at::Tensor logits = outputs(at::kDouble);
  const at::Tensor found = answer_log_probs(logits, microbatch.targets);
  for (int row = 0; row < 4; ++row) {
    EXPECT_NEAR(found[row].item<double>(), log_prob_of_row(logits[row], microbatch.targets[row]),
                1e-12);
  }
  const at::Tensor no_targets = at::full({1, 4}, kIgnoredTarget, at::kLong);
  EXPECT_EQ(answer_log_probs(logits.narrow(0, 0, 1), no_targets).item<double>(), 0);
}

TEST(Dpo, LossSumAndMetricsOfAMicrobatch) {
  const Microbatch m = two_pairs(at::kDouble);
  const at::Tensor logits = outputs(at::kDouble);
  double p[4], r[4];
  for (int row = 0; row < 4; ++row) {
    p[row] = log_prob_of_row(logits[row], m.targets[row]);
    r[row] = m.second_model_output[row].item<double>();
  }
  const DpoOptions options = {.beta = 0.3, .label_smoothing = 0.1};
  const double first = loss_of_pair({p[0], p[2], r[0], r[2]}, 0.3, 0.1);
  const double second = loss_of_pair({p[1], p[3], r[1], r[3]}, 0.3, 0.1);
  MetricSums sums;
  EXPECT_NEAR(dpo_loss_sum(logits, m, options, &sums).item<double>(), first + second, 1e-12);

  const DpoOptions by_tokens = {
      .beta = 0.3, .label_smoothing = 0.1, .mean_over = DpoMeanOver::kTokens};
  EXPECT_NEAR(dpo_loss_sum(logits, m, by_tokens, &sums).item<double>(), 3 * first + 4 * second,
              1e-12);

  EXPECT_EQ(count_pairs(Microbatches({m, m}), DpoMeanOver::kPairs), 4);
  EXPECT_EQ(count_pairs(Microbatches({m, m}), DpoMeanOver::kTokens), 14);

  // Twice the same pairs: the means are those of once.
  double rewards[4];
  for (int row = 0; row < 4; ++row) rewards[row] = 0.3 * (p[row] - r[row]);
  const double accuracy = ((rewards[0] > rewards[2]) + (rewards[1] > rewards[3])) / 2.0;
  const double chosen = (rewards[0] + rewards[1]) / 2, rejected = (rewards[2] + rewards[3]) / 2;
  const double ranking_accuracy = ((p[0] > p[2]) + (p[1] > p[3])) / 2.0;
  ASSERT_NE(ranking_accuracy, accuracy);
  const Metrics wanted = {{"accuracy", accuracy},
                          {"ranking_accuracy", ranking_accuracy},
                          {"margin", chosen - rejected},
                          {"chosen_reward", chosen},
                          {"rejected_reward", rejected},
                          {"chosen_log_prob", (p[0] + p[1]) / 2},
                          {"rejected_log_prob", (p[2] + p[3]) / 2},
                          {"answer_tokens", 3.5}};
  const Metrics found = dpo_metrics(sums);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].first, wanted[i].first);
    EXPECT_NEAR(found[i].second, wanted[i].second, 1e-12) << wanted[i].first;
  }
}

TEST(Dpo, TheGradientIsThatOfTheDefinition) {
  const Microbatch m = two_pairs(at::kDouble);
  const DpoOptions options = {.beta = 0.3, .label_smoothing = 0.1};
  const at::Tensor logits = outputs(at::kDouble).requires_grad_(true);
  dpo_loss_sum(logits, m, options, nullptr).backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (std::int64_t i = 0; i < logits.numel(); i += 3) {
    const auto loss_at = [&](double step) {
      const at::Tensor moved = logits.detach().clone();
      moved.view({-1})[i] += step;
      return dpo_loss_sum(moved, m, options, nullptr).item<double>();
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(logits.grad().view({-1})[i].item<double>(), slope, 1e-8);
  }
}

}  // namespace
}  // namespace ladder
