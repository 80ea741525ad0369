// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/model/build_layers.hpp"
#include "step7_zero3/sharded_model.hpp"

namespace ladder {
namespace {

// forward() calls all of it, and this first. What is left is what was given.
TEST(Stub, SaysWhatIsNotImplemented) {
  SelfCommunicator comm;
  ShardedModel model(
      layer_builder({.vocab_size = 5, .context = 4, .layers = 1, .heads = 1, .channels = 4},
                    /*seed=*/1),
      /*prefetch=*/1, comm);
  EXPECT_EQ(model.leaves().size(), 2u + 12 + 2);
  EXPECT_THAT(
      [&] {
        model.forward(at::zeros({1, 4}, at::kLong));
      },
      ::testing::ThrowsMessage<CheckError>(
          ::testing::StartsWith("not implemented: step7_zero3: ShardedModel::begin_forward()")));
}

}  // namespace
}  // namespace ladder
