#include "common/model/layers.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <tuple>

namespace ladder {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// Largest difference, relative to the largest value.
double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.abs().max().to(at::kDouble))
      .item<double>();
}

class LinearTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(LinearTest, ValueAndGradientsAreThoseOfAddmm) {
  at::manual_seed(1);
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = leaf({rows, in}), weight = leaf({in, out}), bias = leaf({out});
  const at::Tensor dy = at::randn({rows, out});
  const at::Tensor y = Linear{weight, bias}(x);
  y.backward(dy);
  const at::Tensor reference =
      at::addmm(bias.to(at::kDouble), x.to(at::kDouble), weight.to(at::kDouble));
  EXPECT_LT(distance(y, reference), 1e-5);
  EXPECT_LT(distance(x.grad(), at::mm(dy.to(at::kDouble), weight.to(at::kDouble).t())), 1e-5);
  EXPECT_LT(distance(weight.grad(), at::mm(x.to(at::kDouble).t(), dy.to(at::kDouble))), 1e-5);
  EXPECT_LT(distance(bias.grad(), dy.to(at::kDouble).sum(0)), 1e-5);
  EXPECT_TRUE(weight.grad().is_contiguous());
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearTest,
                         ::testing::Values(std::tuple{1, 1, 1}, std::tuple{1, 7, 3},
                                           std::tuple{64, 48, 144}, std::tuple{33, 17, 65},
                                           std::tuple{512, 384, 258}));

TEST(Project, ValueAndGradientsAreThoseOfMm) {
  at::manual_seed(2);
  const at::Tensor x = leaf({2, 5, 12}), weight = leaf({9, 12});
  const at::Tensor y = project(x, weight);
  ASSERT_EQ(y.sizes(), at::IntArrayRef({2, 5, 9}));
  y.sum().backward();
  EXPECT_LT(distance(y, at::matmul(x, weight.t())), 1e-5);
  EXPECT_LT(distance(x.grad(), weight.sum(0).expand({2, 5, 12})), 1e-5);
  EXPECT_LT(distance(weight.grad(), x.sum({0, 1}).expand({9, 12})), 1e-5);
  EXPECT_TRUE(weight.grad().is_contiguous());
}

TEST(Linear, FrozenWeightGetsNoGradient) {
  Linear layer{leaf({4, 3}).detach(), leaf({3})};
  layer(leaf({2, 4})).sum().backward();
  EXPECT_FALSE(layer.weight.grad().defined());
  EXPECT_TRUE(layer.bias.grad().defined());
}

TEST(Linear, DoublePrecisionTakesTheOrdinaryKernel) {
  const at::Tensor x = at::randn({3, 4}, at::kDouble), weight = at::randn({4, 2}, at::kDouble);
  EXPECT_LT(distance(Linear{weight, {}}(x), at::mm(x, weight)), 1e-14);
}

TEST(Attention, SeesThePastOnly) {
  at::manual_seed(3);
  const Attention attention{{leaf({8, 24}), leaf({24})}, {leaf({8, 8}), leaf({8})}, 2};
  const at::Tensor x = at::randn({1, 6, 8});
  at::Tensor changed = x.clone();
  changed.select(1, 4).add_(1.0);
  const at::Tensor difference = (attention(x) - attention(changed)).abs().sum(2).squeeze(0);
  EXPECT_EQ(difference.slice(0, 0, 4).max().item<float>(), 0.0f);
  EXPECT_GT(difference.slice(0, 4).min().item<float>(), 1e-3f);
}

}  // namespace
}  // namespace ladder
