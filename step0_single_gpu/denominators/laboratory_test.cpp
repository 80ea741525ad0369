// A real model: how wrong the mistakes are, what an optimizer makes of it, and the table that shows
// it.
#include "step0_single_gpu/denominators/effects.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/optim/optimizer.hpp"
#include "common/testing/closeness.hpp"

namespace ladder::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sums in fp32 against sums in double.
constexpr double kRounding = 1e-5;

// The raw gradient of the first step.
at::Tensor gradient_from(Mistake mistake, Laboratory& lab, const GlobalBatch& batch) {
  lab.grads().zero();
  accumulate(mistake, lab.loss_sum(), batch, lab.grads());
  return lab.grads().flat().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

// Windows have 256 targets each, so a mean of means is the mean; only scaling twice stays wrong.
TEST(EqualMicrobatches, ForgiveAllButScalingTwice) {
  for (const Cut& cut : {Cut{}, Cut{2, 1, 4, 1}}) {
    Laboratory lab({.rows = Rows::kWindows, .cut = cut});
    const GlobalBatch batch = lab.next();
    const at::Tensor right = gradient_from(Mistake::kNone, lab, batch);
    for (const Mistake mistake : kAllMistakes) {
      const double error = relative_distance(gradient_from(mistake, lab, batch), right);
      const bool is_wrong = mistake == Mistake::kScaledAgain && cut.flushes > 1;
      EXPECT_EQ(is_wrong, error > kRounding) << name_of(mistake) << ": " << error;
    }
  }
  Laboratory lab({.rows = Rows::kWindows});
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

// One denominator gives both cuts of the same rows the same gradient. Scaled means do so only if
// microbatches are equal; README.md has the figures if they are not.
TEST(LossScale, FollowsFromOneDenominatorOnlyIfMicrobatchesAreEqual) {
  for (const bool are_equal : {true, false}) {
    const Rows rows = are_equal ? Rows::kWindows : Rows::kDocuments;
    Laboratory pipeline({.rows = rows, .cut = kPipeline}),
        plain({.rows = rows, .cut = kNoPipeline});
    const GlobalBatch in_16 = pipeline.next(), in_4 = plain.next();
    const at::Tensor right = gradient_from(Mistake::kNone, pipeline, in_16);
    EXPECT_TRUE(close_in_norm(gradient_from(Mistake::kNone, plain, in_4), right, kRounding));
    const at::Tensor scaled = scaled_means(pipeline, in_16, 1.0 / 16);
    const at::Tensor scaled_plain = scaled_means(plain, in_4, 1.0 / 4);
    const double tolerance = are_equal ? kRounding : 0.0002;
    EXPECT_NEAR(relative_distance(scaled, right), are_equal ? 0 : 0.0208, tolerance);
    EXPECT_NEAR(relative_distance(scaled_plain, right), are_equal ? 0 : 0.0189, tolerance);
    EXPECT_NEAR(relative_distance(scaled, scaled_plain), are_equal ? 0 : 0.0051, tolerance);
    // The first mistake computes the same.
    EXPECT_TRUE(
        close_in_norm(gradient_from(Mistake::kMeanOfMeans, pipeline, in_16), scaled, kRounding));
  }
}

// Where three steps along these gradients, times a factor, lead.
at::Tensor walk(OptimizerKind kind, double factor) {
  const at::Tensor params = at::zeros({16}), grads = at::zeros({16});
  Optimizer optimizer({{params, grads, 0, false}}, 16, {}, {.kind = kind, .weight_decay = 0});
  for (int step = 1; step <= 3; ++step) {
    grads.copy_(at::arange(16).sub(7.5).mul(step * step - 4).mul(factor));
    optimizer.step(0.1);
  }
  return params;
}

TEST(ScaleInvariance, AdamWForgetsACommonFactorAndSgdDoesNot) {
  EXPECT_TRUE(
      close_in_norm(walk(OptimizerKind::kAdamW, 0.25), walk(OptimizerKind::kAdamW, 1), 1e-6));
  EXPECT_TRUE(
      close_in_norm(walk(OptimizerKind::kSgd, 0.25), walk(OptimizerKind::kSgd, 1) * 0.25, 1e-6));
}

// With padding counted, a step of SGD is shorter by n / positions. AdamW gets the same gradient as
// the right run, because both are clipped, and takes the same steps.
TEST(Training, PaddingShortensAStepOfSgdAndNoneOfClippedAdamW) {
  Experiment experiment = {.num_steps = 1};
  const Outcome right = train_with(Mistake::kNone, experiment);
  const Outcome padding = train_with(Mistake::kPadding, experiment);
  const double factor = static_cast<double>(right.target_tokens[0]) / (8 * 256);
  EXPECT_LT(factor, 0.9);
  EXPECT_TRUE(
      close_in_norm(padding.params - padding.start, (right.params - right.start) * factor, 1e-4));
  EXPECT_NEAR(padding.losses[0], right.losses[0] * factor, 1e-5);
  experiment = {.recipe = Recipe::kClippedAdamW, .num_steps = 4};
  const Outcome adamw = train_with(Mistake::kNone, experiment);
  const Outcome adamw_padding = train_with(Mistake::kPadding, experiment);
  EXPECT_TRUE(close_in_norm(adamw_padding.params - adamw.start, adamw.params - adamw.start, 1e-3));
  EXPECT_LT(adamw_padding.losses.back(), 0.95 * adamw.losses.back());
  for (const double grad_norm : adamw_padding.grad_norms)
    EXPECT_GT(grad_norm, clip_norm_of(experiment.recipe));  // all of them were clipped
}

// The table of README.md, after few steps: its signs, not its digits.
TEST(Effects, GradientNormsAndParametersTellWhatTheLossHides) {
  const std::vector<EffectRow> rows = measure_effects(/*num_steps=*/2, /*seed=*/1);
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[0].sgd.norm_ratio, 1);
  EXPECT_EQ(rows[0].adamw.distance, 0);
  for (const EffectRow& row : rows) {
    const auto mistake = mistake_named(row.name);
    if (!mistake || *mistake == Mistake::kNone) continue;
    const bool trains_right = *mistake == Mistake::kValidationMeans;
    EXPECT_EQ(row.sgd.distance == 0, trains_right) << row.name;
    EXPECT_EQ(row.sgd.norm_ratio == 1, trains_right) << row.name;
    EXPECT_NEAR(row.adamw.clipped_ratio, 1, 1e-5) << row.name;
    const bool is_log_wrong = trains_right || *mistake == Mistake::kPadding;
    EXPECT_EQ(row.adamw.val_loss != row.adamw.true_val_loss, is_log_wrong) << row.name;
    if (*mistake == Mistake::kPadding) continue;
    const double by_chance = std::abs(rows[1].adamw.loss - rows[0].adamw.loss);
    EXPECT_LT(std::abs(row.adamw.loss - rows[0].adamw.loss), by_chance) << row.name;
  }
}

TEST(Table, ComparesNumbersWithinOnePercentAndTextAsItIs) {
  const EffectRow row = {"right", {3.5, 0, 3.4, 3.4, 1, 1}, {2.5, 0.2, 2.4, 2.4, 1, 1}};
  const std::string table = table_of({row});
  EXPECT_THAT(table, HasSubstr("\n| right | 1.000 | 1.000 | 3.500 (+0.000) | 0.000 | 3.400 |"));
  const auto with = [&](const Effect& sgd) { return table_of({{"right", sgd, row.adamw}}); };
  EXPECT_THAT(compare_tables("text\n\n" + table + "\n| other | table |\n", table), IsEmpty());
  EXPECT_THAT(compare_tables(with({3.52, 0.004, 3.4, 3.4, 1, 1}), table), IsEmpty());
  EXPECT_THAT(compare_tables(with({3.5, 0, 3.45, 3.4, 1, 1}), table),
              ElementsAre(HasSubstr("line 2 of the table, right: it says 3.450 where a new run "
                                    "has 3.400")));
  EXPECT_THAT(compare_tables(with({3.5, 0.006, 3.4, 3.4, 1, 1}), table),
              ElementsAre(HasSubstr("0.006")));
  EXPECT_THAT(compare_tables(table_of({{"wrong", row.sgd, row.adamw}}), table),
              ElementsAre(HasSubstr("it says wrong where")));
  EXPECT_THAT(compare_tables(table_of({row, row}), table),
              ElementsAre("the table has 3 lines, not 2"));
  EXPECT_THAT(compare_tables("no table", table), ElementsAre("the table has 0 lines, not 2"));
  EXPECT_THAT(compare_tables(with({std::nan(""), 0, 3.4, 3.4, 1, 1}), table),
              ElementsAre(HasSubstr("says nan"), HasSubstr("says +nan")));
}

}  // namespace
}  // namespace ladder::lab
