// What the cross-entropy kernels compute with, on the CPU: rows in pieces, as the threads of a
// block have them, against libtorch in double.
#include "common/model/softmax_sum.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kGroup = 8;

// The sum of a row whose numbers are dealt out to `num_threads` threads in groups of 8, as in
// cross_entropy_kernels.cu, and merged halves first. num_threads is a power of two.
SoftmaxSum sum_of(const at::Tensor& row, int num_threads) {
  const auto* data = row.const_data_ptr<float>();
  const auto numel = static_cast<int>(row.numel());
  std::vector<SoftmaxSum> sums;
  for (int thread = 0; thread < num_threads; ++thread) {
    sums.push_back(SoftmaxSum::of_nothing());
    for (int begin = 0; begin < numel; begin += kGroup * num_threads) {
      float numbers[kGroup];
      for (int k = 0; k < kGroup; ++k) {
        const int column = begin + k * num_threads + thread;
        numbers[k] = column < numel ? data[column] : -kInf;
      }
      sums.back().add(numbers);
    }
  }
  for (std::size_t half = sums.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i].merge(sums[i + half]);
  return sums.front();
}

// The gradient of upstream · loss with respect to all logits.
at::Tensor gradient_of(const at::Tensor& row, const SoftmaxSum& sum, int target, float upstream) {
  at::Tensor gradient = at::empty_like(row);
  for (int j = 0; j < static_cast<int>(row.numel()); ++j)
    gradient.mutable_data_ptr<float>()[j] =
        sum.gradient(row.const_data_ptr<float>()[j], j == target, upstream);
  return gradient;
}

TEST(SoftmaxSum, GivesLossAndGradient) {
  at::manual_seed(3);
  for (const int numel : {1, 7, 8, 1000, 50'257}) {
    // Spread over more than exp() of fp32 can hold; the second by far the largest at its end.
    for (at::Tensor row : {at::randn({numel}).mul_(30), at::randn({numel}).sub_(200)}) {
      row[-1] += 50;
      const int target = numel / 2;
      const at::Tensor exact = row.to(at::kDouble).set_requires_grad(true);
      const at::Tensor loss = -exact.log_softmax(0)[target];
      loss.backward(at::full({}, 0.37, at::kDouble));
      for (const int num_threads : {1, 4, 256}) {
        SCOPED_TRACE(::testing::Message() << numel << " numbers, " << num_threads << " threads");
        const SoftmaxSum sum = sum_of(row, num_threads);
        EXPECT_EQ(sum.max, row.max().item<float>());
        EXPECT_NEAR(sum.loss(row[target].item<float>()), loss.item<double>(),
                    1e-6 * (1 + loss.item<double>()));
        const at::Tensor gradient = gradient_of(row, sum, target, 0.37F);
        EXPECT_LE((gradient - exact.grad()).norm().item<double>(),
                  1e-6 * (0.37 + exact.grad().norm().item<double>()));
      }
    }
  }
}

// ln 3 and 0: softmax is (3/4, 1/4), whichever is the first and the largest.
TEST(SoftmaxSum, MergesInAnyOrder) {
  const float ln3 = std::log(3.0F);
  for (const auto& [a, b] : {std::pair{ln3, 0.0F}, std::pair{0.0F, ln3}}) {
    SoftmaxSum first = SoftmaxSum::of_nothing(), second = SoftmaxSum::of_nothing();
    first.add<1>({a});
    second.add<1>({b});
    first.merge(second);
    EXPECT_FLOAT_EQ(first.max, ln3);
    EXPECT_FLOAT_EQ(first.sum, 4.0F / 3);
    EXPECT_FLOAT_EQ(first.loss(ln3), std::log(4.0F / 3));
    EXPECT_FLOAT_EQ(first.gradient(ln3, true, 8), -2);
    EXPECT_FLOAT_EQ(first.gradient(0, false, 8), 2);
  }
}

TEST(SoftmaxSum, NothingAddsNothing) {
  SoftmaxSum sum = SoftmaxSum::of_nothing();
  sum.merge(SoftmaxSum::of_nothing());
  sum.add<2>({-kInf, -kInf});
  EXPECT_EQ(sum.sum, 0);
  sum.add<3>({-kInf, 2, -kInf});
  sum.merge(SoftmaxSum::of_nothing());
  SoftmaxSum late = SoftmaxSum::of_nothing();
  late.merge(sum);
  for (const SoftmaxSum& one : {sum, late}) {
    EXPECT_EQ(one.max, 2);
    EXPECT_EQ(one.sum, 1);
    EXPECT_EQ(one.loss(2), 0);
    EXPECT_EQ(one.gradient(2, true, 5), 0);
  }
}

// A run that has diverged must show it.
TEST(SoftmaxSum, IsNoNumberIfALogitIsNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float broken : {nan, kInf}) {
    for (const auto& [a, b] : {std::pair{broken, 1.0F}, std::pair{1.0F, broken}}) {
      SoftmaxSum sum = SoftmaxSum::of_nothing();
      sum.add<1>({a});
      sum.add<1>({b});
      EXPECT_FALSE(std::isfinite(sum.loss(1)));
      EXPECT_TRUE(std::isnan(sum.gradient(broken, false, 1)));
    }
  }
}

}  // namespace
}  // namespace ladder
