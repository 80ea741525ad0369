// What an optimizer makes of a wrong gradient, and the table that shows it.
#include "step0_single_gpu/denominators/effects.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/optim/optimizer.hpp"
#include "common/testing/closeness.hpp"
#include "step0_single_gpu/denominators/lab_testing.hpp"

namespace ladder::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  const Outcome right = train_with(Mistake::kNone, experiment, documents());
  const Outcome padding = train_with(Mistake::kPadding, experiment, documents());
  const double factor = static_cast<double>(right.target_tokens[0]) / (8 * 256);
  EXPECT_LT(factor, 0.9);
  EXPECT_TRUE(
      close_in_norm(padding.params - padding.start, (right.params - right.start) * factor, 1e-4));
  EXPECT_NEAR(padding.losses[0], right.losses[0] * factor, 1e-5);
  experiment = {.recipe = Recipe::kClippedAdamW, .num_steps = 4};
  const Outcome adamw = train_with(Mistake::kNone, experiment, documents());
  const Outcome adamw_padding = train_with(Mistake::kPadding, experiment, documents());
  EXPECT_TRUE(close_in_norm(adamw_padding.params - adamw.start, adamw.params - adamw.start, 1e-3));
  EXPECT_LT(adamw_padding.losses.back(), 0.95 * adamw.losses.back());
  for (const double grad_norm : adamw_padding.grad_norms)
    EXPECT_GT(grad_norm, clip_norm_of(experiment.recipe));  // all of them were clipped
}

// The table of README.md, after few steps: its signs, not its digits.
TEST(Effects, GradientNormsAndParametersTellWhatTheLossHides) {
  const std::vector<EffectRow> rows = measure_effects(/*num_steps=*/2, /*seed=*/1, documents());
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
              ElementsAre(HasSubstr("line 2 of the table, right : it says 3.450 where a new run "
                                    "has 3.400")));
  EXPECT_THAT(compare_tables(with({3.5, 0.006, 3.4, 3.4, 1, 1}), table),
              ElementsAre(HasSubstr("0.006")));
  EXPECT_THAT(compare_tables(table_of({{"wrong", row.sgd, row.adamw}}), table),
              ElementsAre(HasSubstr("it says wrong where")));
  EXPECT_THAT(compare_tables(table_of({row, row}), table),
              ElementsAre("the table has 3 lines, not 2"));
  EXPECT_THAT(compare_tables("no table", table), ElementsAre("the table has 0 lines, not 2"));
  EXPECT_THAT(compare_tables(with({std::nan(""), 0, 3.4, 3.4, 1, 1}), table),
              ElementsAre(HasSubstr("nan")));
}

}  // namespace
}  // namespace ladder::lab
