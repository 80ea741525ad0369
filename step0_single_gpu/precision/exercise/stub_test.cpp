// The stubs, linked instead of the solutions, compile and fail for the right reason.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step0_single_gpu/precision/exercise/scaled_step.hpp"

namespace ladder {
namespace {

void expect_not_implemented(const std::function<void()>& call, const std::string& what) {
  EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>("not implemented: loss_scaler: " + what));
}

TEST(Stub, SaysWhatIsNotImplemented) {
  LossScaler scaler({.initial = 1024});
  expect_not_implemented([&] { scaler.accepts(1); }, "LossScaler::accepts()");
  const at::Tensor params = at::zeros({16}), grads = at::zeros({16});
  Optimizer optimizer({{params, grads}}, 16, {}, {});
  SelfCommunicator comm;
  expect_not_implemented(
      [&] {
        scaled_step({grads, scaler, optimizer}, 0, comm);
      },
      "scaled_step()");
}

}  // namespace
}  // namespace ladder
