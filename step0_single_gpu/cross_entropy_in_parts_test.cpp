// What several owners make of it: step8_pipeline_ga/tensor_parallel/tensor_parts_test.cpp.
#include "step0_single_gpu/cross_entropy_in_parts.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {
namespace {

VocabParts in_parts(int total, std::int64_t vocab_size) {
  return {all_parts(total), vocab_size};
}

// The loss and the gradient of three times the loss.
std::pair<at::Tensor, at::Tensor> with_gradient(const at::Tensor& logits, const at::Tensor& targets,
                                                const VocabParts& parts) {
  const at::Tensor leaf = logits.detach().clone().set_requires_grad(true);
  const at::Tensor loss =
      parts.total == 1 ? cross_entropy_sum(leaf, targets) : cross_entropy_sum(leaf, targets, parts);
  (loss * 3).backward();
  return {loss.detach(), leaf.grad()};
}

TEST(CrossEntropyInParts, IsThatOfTheWholeUpToRounding) {
  for (const std::int64_t vocab_size : {2, 7, 261, 512}) {
    for (int total = 2; total <= std::min<std::int64_t>(vocab_size, 8); ++total) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor logits = (at::randn({3, 5, vocab_size}) * 5).to(type);
        const at::Tensor targets = at::randint(vocab_size, {3, 5}, at::kLong);
        targets[1][2] = kIgnoredTarget;
        const auto [wanted, wanted_gradient] = with_gradient(logits, targets, in_parts(1, 0));
        const auto [loss, gradient] = with_gradient(logits, targets, in_parts(total, vocab_size));
        EXPECT_EQ(loss.scalar_type(), at::kFloat);
        EXPECT_NEAR(loss.item<double>() / wanted.item<double>(), 1, 1e-6);
        EXPECT_EQ(gradient.scalar_type(), type);
        EXPECT_LE(relative_distance(gradient, wanted_gradient), type == at::kFloat ? 1e-6 : 3e-3);
        EXPECT_TRUE(gradient[1][2].eq(0).all().item<bool>());
      }
    }
  }
}

// The first and the last token of each part, and a maximum that is far above those of other parts.
TEST(CrossEntropyInParts, IsRightAtTheBordersOfParts) {
  const VocabParts parts = in_parts(4, 10);  // tokens 0, 1 | 2 … 4 | 5, 6 | 7 … 9
  for (std::int64_t target = 0; target < 10; ++target) {
    const at::Tensor logits = at::full({1, 10}, -300.0);
    logits[0][target] = 300;
    const at::Tensor targets = at::full({1}, target, at::kLong);
    const auto [right, right_gradient] = with_gradient(logits, targets, parts);
    EXPECT_EQ(right.item<float>(), 0);
    EXPECT_TRUE(right_gradient.eq(0).all().item<bool>());
    const auto [wrong, gradient] =
        with_gradient(logits, at::full({1}, (target + 1) % 10, at::kLong), parts);
    EXPECT_EQ(wrong.item<float>(), 600);
    EXPECT_EQ(gradient[0][target].item<float>(), 3);
    EXPECT_EQ(gradient[0][(target + 1) % 10].item<float>(), -3);
    EXPECT_EQ(gradient.abs().sum().item<float>(), 6);
  }
}

TEST(CrossEntropyInParts, OfIgnoredTargetsIsNothing) {
  const auto [loss, gradient] =
      with_gradient(at::randn({4, 10}), at::full({4}, kIgnoredTarget, at::kLong), in_parts(2, 10));
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_TRUE(gradient.eq(0).all().item<bool>());
}

// Gathered logits would be taken for those of the first part.
TEST(CrossEntropyInParts, RefusesAllLogits) {
  VocabParts second = in_parts(2, 10);
  second.first = second.own = 1;
  const at::Tensor targets = at::full({4}, 7, at::kLong);
  expect_throws<CheckError>(
      [&] {
        cross_entropy_sum(Outputs(at::randn({4, 10}), second), targets);
      },
      {"parts that have 5 tokens", "10 logits"});
}

}  // namespace
}  // namespace ladder
