// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step5_zero1/sharded_optimizer.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  const at::Tensor w = at::ones({3}).set_requires_grad(true);
  FlatModel model({{"unit", {{"w", w}}}}, shard_multiple(1));
  const FlatGradients flat_grads(model);
  const ShardPlan plan = plan_shards(model.layout(), 1, 0);
  const std::vector<at::Tensor> params = plan.slices_of_full(model.params());
  const std::vector<at::Tensor> grads = plan.slices_of_full(flat_grads.flat());
  SelfCommunicator comm;
  const auto expect_not_implemented = [](const std::function<void()>& call, const char* what) {
    EXPECT_THAT(
        call, ::testing::ThrowsMessage<CheckError>(concat("not implemented: step5_zero1: ", what)));
  };
  expect_not_implemented([&] { start_reduce_scatter(comm, flat_grads.flat()); },
                         "start_reduce_scatter()");
  expect_not_implemented([&] { ShardedOptimizer optimizer(plan, params, grads, {}); },
                         "ShardedOptimizer::ShardedOptimizer()");
  expect_not_implemented([&] { sharded_norm(grads, comm); }, "sharded_norm()");
  expect_not_implemented([&] { all_gather_parameters(model, comm); }, "all_gather_parameters()");
}

}  // namespace
}  // namespace ladder
