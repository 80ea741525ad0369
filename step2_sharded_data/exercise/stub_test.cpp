// The stub, linked instead of the solution, compiles and fails for the right reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {
namespace {

TEST(Stub, SaysWhatIsNotImplemented) {
  const std::vector<std::int64_t> order = {1, 0, 2};
  const auto expect_not_implemented = [](const std::function<void()>& call) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>(::testing::StartsWith(
                          "not implemented: step2_sharded_data: samples_of_rank")));
  };
  expect_not_implemented([&] { samples_of_rank(order, 0, 0, 1, Tail::kDrop); });
  expect_not_implemented([&] { data_shard(0, 1, Tail::kDrop).select(order, 0); });
}

}  // namespace
}  // namespace ladder
