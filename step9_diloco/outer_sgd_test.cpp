#include "step9_diloco/outer_sgd.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <vector>

namespace ladder {
namespace {

at::Tensor doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

// Three steps with g = 8, 8, −4 from 0, worked out by hand for lr = 0.5, μ = 0.5:
//   v = 8, 12, 2        d = g + v / 2 = 12, 14, −3        p = −6, −13, −11.5
TEST(OuterSgd, FollowsTheDefinition) {
  const OuterSgd sgd = {.lr = 0.5, .momentum = 0.5};
  const at::Tensor params = doubles({0}), velocity = doubles({0});
  const std::vector<double> gradients = {8, 8, -4}, velocities = {8, 12, 2},
                            wanted = {-6, -13, -11.5};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    sgd.step(params, velocity, doubles({gradients[i]}));
    EXPECT_EQ(velocity.item<double>(), velocities[i]);
    EXPECT_EQ(params.item<double>(), wanted[i]);
  }
}

// With lr = 0.7 and μ = 0.9 and g = 8 twice: d = 15.2, then 8 + 0.9 · 15.2 = 21.68.
TEST(OuterSgd, HasTheValuesOfTheDesign) {
  const OuterSgd sgd = {};
  const at::Tensor params = doubles({1}), velocity = doubles({0});
  sgd.step(params, velocity, doubles({8}));
  EXPECT_NEAR(params.item<double>(), -9.64, 1e-12);
  sgd.step(params, velocity, doubles({8}));
  EXPECT_NEAR(params.item<double>(), -24.816, 1e-12);
}

TEST(OuterSgd, WithoutMomentumARateOf1GoesAllTheWay) {
  const OuterSgd sgd = {.lr = 1, .momentum = 0};
  const at::Tensor params = doubles({3, 4}), velocity = doubles({0, 0});
  sgd.step(params, velocity, doubles({1, -2}));
  EXPECT_TRUE(params.equal(doubles({2, 6})));
  EXPECT_TRUE(velocity.equal(doubles({0, 0})));
}

}  // namespace
}  // namespace ladder
