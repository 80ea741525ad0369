#include "step0_single_gpu/accumulate_gradients.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/check.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/exercise/grader.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// Answers that look right and are not. The grader must reject each of them.

double mean_of_means(const LossSum& loss_sum, const Microbatches& batch, double num_targets) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (const Microbatch& microbatch : batch) {
    const auto own_targets = static_cast<double>(std::max<std::int64_t>(1, microbatch.num_targets));
    const at::Tensor mean = loss_sum(microbatch) / own_targets / static_cast<double>(batch.size());
    mean.backward();
    loss += mean.item<double>();
  }
  return loss;
}

double own_count_instead_of_the_steps(const LossSum& loss_sum, const Microbatches& batch,
                                      double num_targets) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (const Microbatch& microbatch : batch) {
    const at::Tensor share = loss_sum(microbatch) / static_cast<double>(batch.num_targets());
    share.backward();
    loss += share.item<double>();
  }
  return loss;
}

double one_backward_at_the_end(const LossSum& loss_sum, const Microbatches& batch,
                               double num_targets) {
  check(num_targets > 0, "no targets");
  std::vector<at::Tensor> shares;
  for (const Microbatch& microbatch : batch) shares.push_back(loss_sum(microbatch) / num_targets);
  const at::Tensor loss = at::stack(shares).sum();
  loss.backward();
  return loss.item<double>();
}

double last_microbatch_backwards_first(const LossSum& loss_sum, const Microbatches& batch,
                                       double num_targets) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (std::int64_t i = batch.size() - 1; i >= 0; --i) {
    const at::Tensor share = loss_sum(batch[i]) / num_targets;
    share.backward();
    loss += share.item<double>();
  }
  return loss;
}

double forgets_to_divide(const LossSum& loss_sum, const Microbatches& batch, double num_targets) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (const Microbatch& microbatch : batch) {
    const at::Tensor sum = loss_sum(microbatch);
    sum.backward();
    loss += sum.item<double>() / num_targets;
  }
  return loss;
}

double reports_the_last_loss(const LossSum& loss_sum, const Microbatches& batch,
                             double num_targets) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (const Microbatch& microbatch : batch) {
    const at::Tensor share = loss_sum(microbatch) / num_targets;
    share.backward();
    loss = share.item<double>();
  }
  return loss;
}

double accepts_an_empty_step(const LossSum& loss_sum, const Microbatches& batch,
                             double num_targets) {
  return num_targets > 0 ? accumulate_gradients(loss_sum, batch, num_targets) : 0.0;
}

TEST(Exercise, GraderRejectsWrongAnswers) {
  const std::vector<std::pair<const char*, step0::AccumulateGradients>> wrong = {
      {"mean of means", mean_of_means},
      {"own count instead of the step's", own_count_instead_of_the_steps},
      {"one backward at the end", one_backward_at_the_end},
      {"last microbatch first", last_microbatch_backwards_first},
      {"forgets to divide", forgets_to_divide},
      {"reports the last loss", reports_the_last_loss},
      {"accepts an empty step", accepts_an_empty_step},
  };
  for (const auto& [name, attempt] : wrong)
    EXPECT_THAT(step0::grade(attempt), Not(IsEmpty())) << name;
}

TEST(Evaluate, HasOneDenominatorAndLeavesNoGradient) {
  const at::Tensor w = at::ones({}).set_requires_grad(true);
  const LossSum loss_sum = [&](const Microbatch& microbatch) {  // mean losses 1 and 3
    return w * (microbatch.num_targets == 30 ? 1.0 * 30 : 3.0 * 10);
  };
  const Microbatches batches({{{}, {}, 30}, {{}, {}, 10}});
  EXPECT_DOUBLE_EQ(evaluate(loss_sum, batches), 1.5);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({}))));
}

}  // namespace
}  // namespace ladder
