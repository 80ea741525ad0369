// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step3_naive_dp/naive_dp.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  FlatModel model({{"unit", {{"w", at::ones({3}).set_requires_grad(true)}}}});
  FlatGradients grads(model);
  SelfCommunicator comm;
  const auto expect_not_implemented = [](const std::function<void()>& call, const char* what) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
                          concat("not implemented: step3_naive_dp: ", what))));
  };
  expect_not_implemented([&] { broadcast_parameters(model, comm); }, "broadcast_parameters");
  expect_not_implemented([&] { all_reduce_gradients(grads, comm); }, "all_reduce_gradients");
}

}  // namespace
}  // namespace ladder
