// What exact sums do with their arithmetic, which the exercise exact_sums judges.
#include "common/optim/exact_sums.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

// The layout of a model with these units, each of one tensor, "t0", "t1", ….
FlatLayout layout_of(const std::vector<std::int64_t>& numels) {
  std::vector<Unit> units;
  for (const std::int64_t numel : numels)
    units.push_back({"u", {{concat("t", units.size()), at::zeros({numel})}}});
  return plan_flat_layout(units);
}

void begin(ExactSums& sums, const FlatLayout& layout, const std::vector<double>& learned_from) {
  sums.cover(layout);
  EXPECT_FALSE(sums.learn(learned_from));  // the first step, once more
}

// Rounds a copy: what nobody else has is rounded in place.
at::Tensor rounded_by(const ExactSums& sums, const std::string& name, const at::Tensor& summand) {
  return sums.round(name, summand.clone());
}

// A norm of 1 and 3 microbatches give 2^21 quanta of 2^-18.
TEST(ExactSums, ASummandBeyondItsShareOfTheRangeIsInfinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  ExactSums sums(3);
  begin(sums, layout_of({1}), {1});
  const auto round = [&](double x) { return sums.round("t0", at::full({1}, x)).item<double>(); };
  for (const double sign : {-1., 1.}) {
    EXPECT_EQ(round(sign * 8), sign * 8);
    EXPECT_EQ(round(sign * (8 + 0x1p-20)), kInfinite);
    EXPECT_TRUE(std::isnan(round(sign * kInfinite) + round(9)));
  }
  EXPECT_TRUE(sums.learn({1}));
  EXPECT_FALSE(sums.learn({kInfinite}));
  EXPECT_EQ(round(9), 9);
  EXPECT_TRUE(sums.learn({std::nan("")}));      // no quantum helps
  EXPECT_TRUE(ExactSums().learn({kInfinite}));  // off
}

// Takes a step of one microbatch with these gradients, as often as it must be computed again.
struct Step {
  std::vector<at::Tensor> rounded;
  int num_repeats = 0;
};
Step take_step(ExactSums& sums, const std::vector<at::Tensor>& gradients) {
  for (Step step; step.num_repeats < 100; ++step.num_repeats) {
    step.rounded.clear();
    std::vector<double> block_sums;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      step.rounded.push_back(rounded_by(sums, concat("t", i), gradients[i]));
      for (const at::Tensor& block : step.rounded.back().to(at::kDouble).split(kNormBlock))
        block_sums.push_back(block.square().sum().item<double>());
    }
    if (sums.learn(block_sums)) return step;
  }
  throw CheckError("the step does not end");
}

at::Tensor saved(const ExactSums& sums) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& unit : sums.quanta_by_unit()) all.push_back(unit.tensor);
  return at::cat(all).clone();
}

// However far a gradient falls, its sum is about as precise as ever. A part of the model that falls
// does not take the rest with it.
TEST(ExactSums, AGradientThatFallsIsNotRoundedAway) {
  at::manual_seed(5);
  const at::Tensor a = at::randn({1500}), b = at::randn({40});
  for (const int fall : {0, 4, 9, 15, 19, 25, 60, 100}) {
    SCOPED_TRACE(fall);
    ExactSums sums(2);
    sums.cover(layout_of({1500, 40}));
    take_step(sums, {a, b});
    const at::Tensor smaller = at::mul(a, std::ldexp(1.0, -fall));
    const Step step = take_step(sums, {smaller, b});
    EXPECT_EQ(step.num_repeats > 0, fall > 8);
    const double error =
        (step.rounded[0] - smaller).div(std::ldexp(1.0, -fall)).norm().item<double>();
    EXPECT_LT(error / a.norm().item<double>(), 1e-2);
    EXPECT_TRUE(bits_equal(step.rounded[1], take_step(sums, {smaller, b}).rounded[1]));
  }
}

// As in a step without a target.
TEST(ExactSums, AUnitOfZerosIsBelievedAndKeepsItsQuanta) {
  at::manual_seed(6);
  const at::Tensor a = at::randn({1500}), b = at::randn({40}), zero = at::zeros({1500});
  ExactSums sums(2);
  sums.cover(layout_of({1500, 40}));
  take_step(sums, {a, b});
  const at::Tensor before = saved(sums);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(take_step(sums, {zero, b}).num_repeats, 1);
    EXPECT_TRUE(bits_equal(saved(sums), before));
  }
  EXPECT_EQ(take_step(sums, {zero, at::zeros({40})}).num_repeats, 1);
  EXPECT_EQ(take_step(sums, {a, b}).num_repeats, 0);
}

// Two summands that cancel each other: quanta as small as their sum have no room for either.
TEST(ExactSums, AStepThatCancelsEnds) {
  for (const double rest : {0., 0x1p-30}) {
    SCOPED_TRACE(rest);
    ExactSums sums(2);
    sums.cover(layout_of({1}));
    take_step(sums, {at::full({1}, 1.)});
    int num_repeats = 0;
    const auto sum = [&] {
      return rounded_by(sums, "t0", at::full({1}, 1 + rest)) +
             rounded_by(sums, "t0", at::full({1}, -1.));
    };
    while (!sums.learn({at::square(sum()).item<double>()})) ASSERT_LT(++num_repeats, 100);
  }
}

// What a checkpoint holds is in nobody's units.
TEST(ExactSums, QuantaAreThoseOfAGradientWithoutAScale) {
  at::manual_seed(7);
  const at::Tensor a = at::randn({1500}), b = at::randn({40});
  ExactSums sums(3), scaled(3);
  for (ExactSums* each : {&sums, &scaled}) each->cover(layout_of({1500, 40}));
  for (const double scale : {262144., 1., 64.}) {  // it changes within a run
    scaled.set_scale(scale);
    const Step step = take_step(sums, {a, b}), same = take_step(scaled, {a * scale, b * scale});
    EXPECT_EQ(same.num_repeats, step.num_repeats);
    EXPECT_TRUE(bits_equal(saved(scaled), saved(sums)));
    for (const std::size_t i : {0U, 1U})
      EXPECT_TRUE(bits_equal(same.rounded[i], step.rounded[i] * scale));
  }
}

TEST(ExactSums, SummandsIn16BitsAreRoundedOnce) {
  at::manual_seed(3);
  ExactSums sums(3);
  begin(sums, layout_of({1500}), {1e6, 1e4});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = at::randn({1500}).to(type), before = values.clone();
    const at::Tensor rounded = sums.round("t0", values);
    EXPECT_TRUE(rounded.is_same(values));  // nobody else has it
    EXPECT_FALSE(at::equal(rounded, before));
    EXPECT_TRUE(bits_equal(rounded.to(at::kFloat), sums.round("t0", before.to(at::kFloat))));
  }
}

// Both terms of a sum get the gradient of the sum itself, which the caller holds as well.
TEST(ExactSums, AGradientThatSomebodyElseHoldsIsNotChanged) {
  at::manual_seed(4);
  const std::vector<NamedTensor> leaves = {{"t0", at::zeros({5, 8}).set_requires_grad(true)},
                                           {"t1", at::zeros({8, 5}).set_requires_grad(true)}};
  const at::Tensor &a = leaves[0].tensor, &b = leaves[1].tensor;
  const at::Tensor gradient = at::randn({5, 8}), before = gradient.clone();
  const auto backward = [&] { (a + b.t()).backward(gradient); };
  at::Tensor of_a, of_b;
  {
    ExactSums sums(3);
    sums.cover(layout_of({40, 40}), leaves);
    EXPECT_FALSE(sums.learn({1e8, 1e4}));
    backward();
    backward();
    of_a = rounded_by(sums, "t0", before);
    of_b = rounded_by(sums, "t1", before.t());
    EXPECT_THAT([&] { sums.round("t2", before); }, ::testing::Throws<CheckError>());
  }
  EXPECT_TRUE(bits_equal(gradient, before));
  EXPECT_FALSE(at::equal(of_a, of_b.t()));
  EXPECT_TRUE(bits_equal(a.grad(), of_a + of_a));  // each was rounded before it was added
  EXPECT_TRUE(bits_equal(b.grad(), of_b + of_b));
  backward();  // without hooks again
  EXPECT_TRUE(bits_equal(a.grad(), of_a + of_a + before));
}

// A norm that was computed otherwise has none, or those of some ranks; a padded layout has more.
TEST(ExactSums, AnotherNumberOfBlockSumsIsRefused) {
  ExactSums sums(3);
  sums.cover(plan_flat_layout({{"u", {{"t0", at::zeros({1500})}}}, {"v", {{"t1", at::zeros({1})}}}},
                              /*multiple=*/2 * kNormBlock));
  for (const std::size_t count : {0U, 1U, 3U, 5U}) {
    EXPECT_THAT([&] { sums.learn(std::vector<double>(count, 1.0)); },
                ::testing::ThrowsMessage<CheckError>(::testing::HasSubstr(
                    concat("there are ", count, ", but the model has 4 blocks of 1024 elements"))));
  }
  EXPECT_FALSE(sums.learn({1, 1, 1, 0}));  // the first step, once more
  EXPECT_TRUE(sums.learn({1, 1, 1, 0}));
  EXPECT_TRUE(ExactSums().learn({}));  // off
}

}  // namespace
}  // namespace ladder
