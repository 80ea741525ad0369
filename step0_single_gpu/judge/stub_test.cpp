// Of every exercise that is judged: what the learner starts with compiles, and the judge says what
// is missing in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/testing/judge_main.hpp"

namespace ladder {
namespace {

TEST(Stub, IsRejectedForWhatIsMissing) {
  SelfCommunicator alone;
  EXPECT_THAT(judge_linked(alone), ::testing::Contains(::testing::HasSubstr(LADDER_STUB_SAYS)));
}

}  // namespace
}  // namespace ladder
