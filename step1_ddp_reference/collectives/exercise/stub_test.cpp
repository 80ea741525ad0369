// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step1_ddp_reference/collectives/all_reduce_from_messages.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  SelfCommunicator comm;
  EXPECT_THAT([&] { all_reduce_from_messages(at::zeros({4}), comm); },
              ::testing::ThrowsMessage<CheckError>(
                  "not implemented: collectives: all_reduce_from_messages()"));
}

}  // namespace
}  // namespace ladder
