// The stubs, linked instead of the solutions, compile and fail for the right reason.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"

namespace ladder {
namespace {

void expect_not_implemented(const std::function<void()>& call, const std::string& what) {
  EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(
                        ::testing::StartsWith("not implemented: step8_pipeline_ga: " + what)));
}

TEST(Stub, PlansGpipeAndNothingElse) {
  EXPECT_EQ(what_is_wrong_with(plan_pipeline(Schedule::kGpipe, 3, 4)), "");
  EXPECT_EQ(what_is_wrong_with(plan_forwards(3, 4, 2)), "");
  expect_not_implemented([] { plan_pipeline(Schedule::k1f1b, 3, 4); }, "head_start()");
  expect_not_implemented([] { plan_pipeline(Schedule::kZeroBubble, 3, 4); }, "head_start()");
  expect_not_implemented([] { plan_pipeline(Schedule::kInterleaved, 3, 6, 2); }, "take_turns()");
}

// One chunk, on a plan that needs no part 1.
TEST(Stub, RunsForwardAndNoBackward) {
  const at::Tensor w = at::ones({2, 3}).set_requires_grad(true);
  const auto forward = [w](const at::Tensor& tokens) {
    return w.index_select(0, tokens.flatten()).view({1, 2, 3});
  };
  const Microbatch microbatch = {at::zeros({1, 2}, at::kLong), at::ones({1, 2}, at::kLong), 2};
  SelfCommunicator comm;
  PipelineRunner runner({Model{{{{"unit", {{"w", w}}}, forward}}}}, /*channels=*/3, comm,
                        [](std::int64_t m) { return plan_pipeline(Schedule::kGpipe, 1, m); });
  EXPECT_EQ(runner.loss_sums(kNextToken, Microbatches({microbatch})).size(), 1u);
  expect_not_implemented(
      [&] { runner.accumulate_gradients(kNextToken, Microbatches({microbatch}), 2, 1); },
      "PipelineRunner::Execution::backward()");
}

}  // namespace
}  // namespace ladder
