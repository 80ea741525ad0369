// The stub compiles, and fails for the right reason: links exercise/gradient_bucketer.cpp instead of
// the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  FlatModel model({{"unit", {{"w", at::ones({3}).set_requires_grad(true)}}}});
  SelfCommunicator comm;
  const auto message = [](const char* what) {
    return ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
        concat("not implemented: step4_bucketed_ddp: GradientBucketer::", what)));
  };
  GradientBucketer bucketer(model, {{0, 16, {0}}}, comm);
  EXPECT_THAT([&] { bucketer.arm(1); }, message("arm()"));
  EXPECT_THAT([&] { bucketer.wait(); }, message("wait()"));
}

}  // namespace
}  // namespace ladder
