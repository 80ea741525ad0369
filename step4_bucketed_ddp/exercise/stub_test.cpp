// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  const at::Tensor w = at::ones({3}).set_requires_grad(true);
  FlatModel model({{"unit", {{"w", w}}}});
  FlatGradients grads(model);
  SelfCommunicator comm;
  const auto expect_not_implemented = [](const std::function<void()>& call, const char* what) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(concat(
                          "not implemented: step4_bucketed_ddp: GradientBucketer::", what))));
  };
  GradientBucketer bucketer(grads, {{0, 16, {0}}}, comm);
  expect_not_implemented([&] { bucketer.arm(1); }, "arm()");
  expect_not_implemented([&] { w.sum().backward(); }, "on_gradient()");  // and it calls the rest
  expect_not_implemented([&] { bucketer.count_gradient(w); }, "on_gradient()");  // for step 8
  expect_not_implemented([&] { bucketer.wait(); }, "wait()");
}

}  // namespace
}  // namespace ladder
