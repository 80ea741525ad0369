// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  EXPECT_THAT([] { accumulate_gradients({}, Microbatches({}), 1.0, 1.0); },
              ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
                  "not implemented: step0_single_gpu: accumulate_gradients")));
}

}  // namespace
}  // namespace ladder
