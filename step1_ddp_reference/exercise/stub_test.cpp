// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  const at::Tensor w = at::ones({3}).set_requires_grad(true);
  FlatModel model({{"unit", {{"w", w}}}});
  SelfCommunicator comm;
  ReferenceDdp ddp(model, comm);
  const auto expect_not_implemented = [](const std::function<void()>& call, const char* what) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
                          concat("not implemented: step1_ddp_reference: ", what))));
  };
  expect_not_implemented([&] { ddp.broadcast_parameters(); }, "broadcast_parameters");
  expect_not_implemented([&] { ddp.wrap({}); }, "wrap");
  expect_not_implemented([&] { ddp.arm(1); }, "arm");
  expect_not_implemented([&] { ddp.wait(); }, "wait");
}

}  // namespace
}  // namespace ladder
