#include "common/optim/exact_sums.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Of a model with these units, each of one tensor, "t0", "t1", ….
FlatLayout layout_of(const std::vector<std::int64_t>& numels, std::int64_t unit_multiple = 1) {
  std::vector<Unit> units;
  for (const std::int64_t numel : numels) {
    const std::string number = std::to_string(units.size());
    units.push_back({"unit" + number, {{"t" + number, at::zeros({numel})}}});
  }
  return plan_flat_layout(units, unit_multiple);
}

ExactSums sums_over(const FlatLayout& layout, std::int64_t num_microbatches,
                    const std::vector<double>& learned_from = {}) {
  ExactSums sums(num_microbatches);
  sums.cover(layout);
  if (!learned_from.empty()) {
    EXPECT_FALSE(sums.learn(learned_from));  // the first step, once more
  }
  return sums;
}

std::vector<double> exponents(const ExactSums& sums) {
  std::vector<double> all;
  for (const NamedTensor& unit : sums.quanta_by_unit()) {
    for (std::int64_t i = 0; i < unit.tensor.numel(); ++i)
      all.push_back(std::log2(unit.tensor[i].item<double>()));
  }
  return all;
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

// The sums in order, backwards, shuffled, and as three ranks have them.
std::vector<at::Tensor> in_many_orders(const std::vector<at::Tensor>& summands) {
  std::vector<at::Tensor> sums = {added_up(summands),
                                  added_up({summands.rbegin(), summands.rend()})};
  std::vector<at::Tensor> shuffled = summands, ranks(3, at::zeros_like(summands[0]));
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  for (std::size_t i = 0; i < summands.size(); ++i) ranks[i % 3] = ranks[i % 3] + summands[i];
  sums.insert(sums.end(), {added_up(shuffled), added_up(ranks)});
  return sums;
}

TEST(ExactSums, OfThreeNumbersOnDoNotDependOnTheOrder) {
  at::manual_seed(1);
  const FlatLayout layout = layout_of({2000});
  for (const std::int64_t num_summands : {3, 24, 100}) {
    std::vector<at::Tensor> plain, rounded;
    at::Tensor exact = at::zeros({2000}, at::kDouble);
    for (std::int64_t i = 0; i < num_summands; ++i) {
      plain.push_back(at::randn({2000}));
      exact.add_(plain.back());
    }
    const ExactSums sums = sums_over(layout, num_summands, block_sums({added_up(plain)}));
    for (const at::Tensor& summand : plain) rounded.push_back(rounded_by(sums, "t0", summand));
    const std::vector<at::Tensor> all = in_many_orders(rounded);
    for (const at::Tensor& sum : all) EXPECT_TRUE(bits_equal(sum, all[0]));
    EXPECT_FALSE(at::equal(in_many_orders(plain)[1], added_up(plain)));
    const double quantum = sums.quanta_by_unit()[0].tensor.max().item<double>();
    EXPECT_LE((all[0] - exact).abs().max().item<double>(), 0.5 * quantum * num_summands);
  }
}

// Of five microbatches, after a norm of 1: the quantum is 2^-17, and a share 2^20 quanta. All shares
// together are exact. The judge of the exercise examines the arithmetic.
TEST(ExactSums, ASummandBeyondItsShareOfTheRangeIsInfinite) {
  const ExactSums sums = sums_over(layout_of({1}), 5, {1});
  EXPECT_THAT(exponents(sums), ElementsAre(-17));
  const auto round = [&sums](float x) { return sums.round("t0", at::full({1}, x)).item<float>(); };
  EXPECT_EQ(round(-8), -8);
  EXPECT_EQ(round(std::nextafter(-8.0F, -9.0F)), kInfinite);
  EXPECT_TRUE(std::isnan(round(kInfinite)));
  float sum = round(0x1p-17F);
  for (int use = 1; use < 10; ++use) sum += round(8);
  EXPECT_EQ(sum, 72 + 0x1p-17F);
}

TEST(ExactSums, QuantaGrowUntilTheSumIsFiniteAndThenFollowItsNorm) {
  ExactSums sums = sums_over(layout_of({2500, 10}), 1);
  struct Step {
    std::vector<double> block_sums;  // three, and one of the second unit
    bool succeeds, is_known;         // afterwards
    std::vector<double> exponents;   // of the quanta
  };
  const std::vector<double> first = {-40, -40, -40, -40}, later = {-18, -19, -25, -32};
  const std::vector<double> usual = {4, 1, 0x1p-40, 0};  // a small block counts as 2^-8 of its unit
  for (const Step& step :
       std::vector<Step>{{{0, 0, 0, 0}, true, false, first},  // nothing to learn
                         {{kNoNumber, 1, 1, 1}, true, false, first},
                         {{1, kInfinite, 1, kNoNumber}, true, false, first},  // no quantum helps
                         {{kInfinite, 1, kInfinite, kInfinite}, false, false, {-32, -40, -32, -32}},
                         {{1, 1, kInfinite, 1}, false, false, {-32, -40, -24, -32}},
                         {usual, false, true, later},  // once more
                         {usual, true, true, later},
                         {{0, 0, 0, 0}, true, true, later},
                         {{4, kInfinite, 1, kInfinite}, false, true, {-18, -11, -25, -24}},
                         {{5, 1, 0, 1}, true, true, {-17, -19, -25, -19}}}) {
    SCOPED_TRACE(::testing::PrintToString(step.block_sums));
    EXPECT_EQ(sums.learn(step.block_sums), step.succeeds);
    EXPECT_EQ(sums.is_known(), step.is_known);
    EXPECT_EQ(exponents(sums), step.exponents);
  }
  EXPECT_TRUE(ExactSums().learn({kInfinite}));  // off
}

// A sharded step cuts units into slices of whole blocks. Its quanta, and what it rounds, are those
// of a single process, and so is their memory.
TEST(ExactSums, PaddingOfUnitsChangesNothing) {
  install_memory_ledger();
  at::manual_seed(2);
  const std::vector<std::int64_t> numels = {1, 1000, 1024, 5000};
  std::vector<at::Tensor> values;
  for (const std::int64_t numel : numels) values.push_back(at::randn({numel}));
  std::vector<std::vector<double>> quanta;
  std::vector<at::Tensor> rounded;
  for (const std::int64_t multiple : {std::int64_t{1}, 3 * kNormBlock}) {
    const FlatLayout layout = layout_of(numels, multiple);
    const at::Tensor flat = at::zeros({layout.numel});
    for (std::size_t i = 0; i < numels.size(); ++i)
      flat.narrow(0, layout.tensors[i].start, numels[i]).copy_(values[i]);
    const ExactSums sums = sums_over(layout, 7, flat_norm(layout, flat).block_sums);
    EXPECT_EQ(read_memory().other_bytes["quanta"], 4 * (1 + 1 + 1 + 5));
    quanta.push_back(exponents(sums));
    for (std::size_t i = 0; i < numels.size(); ++i)
      rounded.push_back(rounded_by(sums, layout.tensors[i].name, values[i]));
  }
  EXPECT_EQ(quanta[0], quanta[1]);
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

TEST(ExactSums, AGradientThatSomebodyElseHoldsIsNotChanged) {
  at::manual_seed(4);
  const FlatLayout layout = layout_of({40, 40});
  ExactSums sums(3);
  const std::vector<NamedTensor> leaves = {{"t0", at::zeros({5, 8}).set_requires_grad(true)},
                                           {"t1", at::zeros({8, 5}).set_requires_grad(true)}};
  const at::Tensor &a = leaves[0].tensor, &b = leaves[1].tensor;
  const at::Tensor gradient = at::randn({5, 8}), before = gradient.clone();
  const auto backward = [&] { (a + b.t()).backward(gradient); };
  {
    const RoundGradients rounding(sums, layout, leaves);
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
