// What the cross-entropy kernels compute with. tests/kernels_on_cpu compares whole rows with
// libtorch.
#include "common/model/softmax_sum.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace ladder {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

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
