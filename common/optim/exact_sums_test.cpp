// What exact sums do with their arithmetic, which the exercise exact_sums judges.
#include "common/optim/exact_sums.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

// Of a model with these units, each of one tensor, "t0", "t1", ….
FlatLayout layout_of(const std::vector<std::int64_t>& numels, std::int64_t unit_multiple = 1) {
  std::vector<Unit> units;
  for (const std::int64_t numel : numels)
    units.push_back({"u", {{concat("t", units.size()), at::zeros({numel})}}});
  return plan_flat_layout(units, unit_multiple);
}

ExactSums sums_over(const FlatLayout& layout, std::int64_t num_microbatches,
                    const std::vector<double>& learned_from) {
  ExactSums sums(num_microbatches);
  sums.cover(layout);
  EXPECT_FALSE(sums.learn(learned_from));  // the first step, once more
  return sums;
}

// Of a copy: what nobody else has is rounded in place.
at::Tensor rounded_by(const ExactSums& sums, const std::string& name, const at::Tensor& summand) {
  return sums.round(name, summand.clone());
}

at::Tensor added_up(const std::vector<at::Tensor>& summands) {
  at::Tensor sum = at::zeros_like(summands[0]);
  for (const at::Tensor& summand : summands) sum = sum + summand;
  return sum;
}

// In order, backwards, shuffled, and as three ranks have them.
TEST(ExactSums, OfThreeNumbersOnDoNotDependOnTheOrder) {
  at::manual_seed(1);
  for (const std::int64_t num_summands : {3, 24, 100}) {
    std::vector<at::Tensor> plain, rounded, ranks(3, at::zeros({2000}));
    for (std::int64_t i = 0; i < num_summands; ++i) plain.push_back(at::randn({2000}));
    const at::Tensor sum = added_up(plain);
    EXPECT_FALSE(at::equal(added_up({plain.rbegin(), plain.rend()}), sum));
    const ExactSums sums = sums_over(layout_of({2000}), num_summands, block_sums({sum}));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      rounded.push_back(rounded_by(sums, "t0", plain[i]));
      ranks[i % 3] = ranks[i % 3] + rounded.back();
    }
    const at::Tensor wanted = added_up(rounded);
    EXPECT_TRUE(bits_equal(added_up({rounded.rbegin(), rounded.rend()}), wanted));
    EXPECT_TRUE(bits_equal(added_up(ranks), wanted));
    std::shuffle(rounded.begin(), rounded.end(), std::mt19937(1));
    EXPECT_TRUE(bits_equal(added_up(rounded), wanted));
    EXPECT_TRUE(close_in_norm(wanted, sum, 1e-2));
  }
}

// Of a norm of 1 and 3 microbatches: 2^21 quanta of 2^-18.
TEST(ExactSums, ASummandBeyondItsShareOfTheRangeIsInfinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  ExactSums sums = sums_over(layout_of({1}), 3, {1});
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

// A sharded step cuts units into slices of whole blocks. What it rounds has the bits, and its quanta
// take the memory, of a single process.
TEST(ExactSums, PaddingOfUnitsChangesNothing) {
  install_memory_ledger();
  at::manual_seed(2);
  const std::vector<std::int64_t> numels = {1, 1000, 1024, 5000};
  std::vector<at::Tensor> values, rounded;
  for (const std::int64_t numel : numels) values.push_back(at::randn({numel}));
  for (const std::int64_t multiple : {std::int64_t{1}, 3 * kNormBlock}) {
    const FlatLayout layout = layout_of(numels, multiple);
    const at::Tensor flat = at::zeros({layout.numel});
    for (std::size_t i = 0; i < numels.size(); ++i)
      flat.narrow(0, layout.tensors[i].start, numels[i]).copy_(values[i]);
    const ExactSums sums = sums_over(layout, 7, flat_norm(layout, flat).block_sums);
    EXPECT_EQ(read_memory().other_bytes["quanta"], 4 * (1 + 1 + 1 + 5));
    for (std::size_t i = 0; i < numels.size(); ++i)
      rounded.push_back(rounded_by(sums, layout.tensors[i].name, values[i]));
  }
  for (std::size_t i = 0; i < numels.size(); ++i)
    EXPECT_TRUE(bits_equal(rounded[i], rounded[i + numels.size()]));
}

TEST(ExactSums, SummandsIn16BitsAreRoundedOnce) {
  at::manual_seed(3);
  const ExactSums sums = sums_over(layout_of({1500}), 3, {1e6, 1e4});
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
  ExactSums sums(3);
  const std::vector<NamedTensor> leaves = {{"t0", at::zeros({5, 8}).set_requires_grad(true)},
                                           {"t1", at::zeros({8, 5}).set_requires_grad(true)}};
  const at::Tensor &a = leaves[0].tensor, &b = leaves[1].tensor;
  const at::Tensor gradient = at::randn({5, 8}), before = gradient.clone();
  const auto backward = [&] { (a + b.t()).backward(gradient); };
  {
    const RoundGradients rounding(sums, layout_of({40, 40}), leaves);
    EXPECT_FALSE(sums.learn({1e8, 1e4}));
    backward();
    backward();
  }
  EXPECT_TRUE(bits_equal(gradient, before));
  const at::Tensor of_a = rounded_by(sums, "t0", before), of_b = rounded_by(sums, "t1", before.t());
  EXPECT_FALSE(at::equal(of_a, of_b.t()));
  EXPECT_TRUE(bits_equal(a.grad(), of_a + of_a));  // each was rounded before it was added
  EXPECT_TRUE(bits_equal(b.grad(), of_b + of_b));
  backward();  // without hooks again
  EXPECT_TRUE(bits_equal(a.grad(), of_a + of_a + before));
  EXPECT_THAT([&] { sums.round("t2", before); }, ::testing::Throws<CheckError>());
}

}  // namespace
}  // namespace ladder
