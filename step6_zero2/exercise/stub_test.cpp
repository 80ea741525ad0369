// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/optim/flat_model.hpp"
#include "step6_zero2/gradient_sharder.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  const at::Tensor w = at::ones({3}).set_requires_grad(true);
  const FlatModel model({{"unit", {{"w", w}}}}, shard_multiple(1));
  SelfCommunicator comm;
  const auto expect_not_implemented = [](const std::function<void()>& call, const char* what) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
                          concat("not implemented: step6_zero2: GradientSharder::", what))));
  };
  ShardPlan plan = plan_shards(model.layout(), 1, 0);
  plan.layout.precision.grads = at::kBFloat16;
  plan.layout.device = at::kMeta;
  GradientSharder sharder(plan, model.leaves(), comm);
  EXPECT_EQ(sharder.grad_shard().numel(), 1024);
  EXPECT_EQ(sharder.grad_shard().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(sharder.grad_shard().is_meta());
  expect_not_implemented([&] { sharder.arm(1); }, "arm()");
  expect_not_implemented([&] { w.sum().backward(); }, "on_gradient()");  // and it calls the rest
  expect_not_implemented([&] { sharder.wait(); }, "wait()");
}

}  // namespace
}  // namespace ladder
