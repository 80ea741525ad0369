#include "common/comm/self_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/contract/refused_operations.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(SelfCommunicator, CollectivesCopyOrDoNothing) {
  SelfCommunicator comm;
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  const at::Tensor values = at::arange(5, at::kFloat);
  at::Tensor tensor = values.clone();
  comm.all_reduce(tensor)->wait();
  EXPECT_TRUE(bits_equal(tensor, values));
  comm.broadcast(tensor, 0)->wait();
  EXPECT_TRUE(bits_equal(tensor, values));
  at::Tensor other = at::zeros({5});
  comm.reduce_scatter(tensor, other)->wait();
  EXPECT_TRUE(bits_equal(other, values));
  other.zero_();
  const WorkPtr work = comm.all_gather(tensor, other);
  EXPECT_TRUE(work->test());
  EXPECT_TRUE(bits_equal(other, values));
  comm.all_gather(tensor, tensor)->wait();  // a shard may be its own piece
  EXPECT_TRUE(bits_equal(tensor, values));
  comm.barrier();
  EXPECT_EQ(all_reduce_sum(2.5, comm), 2.5);
}

TEST(SelfCommunicator, CountsCallsAndSendsNothing) {
  SelfCommunicator comm;
  comm.all_reduce(at::ones({8}))->wait();
  comm.all_reduce(at::ones({8}))->wait();
  comm.barrier();
  EXPECT_EQ(comm.traffic().bytes_sent(), 0);
  EXPECT_EQ(comm.traffic()[CommOp::kAllReduce].calls, 2);
  EXPECT_EQ(comm.traffic()[CommOp::kBarrier].calls, 1);
  EXPECT_EQ(comm.traffic()[CommOp::kBroadcast].calls, 0);
}

TEST(SelfCommunicator, SplitsIntoItself) {
  SelfCommunicator comm;
  const auto part = comm.split(3, -1);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->size(), 1);
  EXPECT_EQ(comm.split(-1, 0), nullptr);
}

TEST(SelfCommunicator, RefusesWhatManyRanksWouldRefuse) {
  SelfCommunicator comm;
  for (const RefusedOperation& refused : refused_operations(0, 1)) {
    const std::string start = concat("rank 0 of 1: ", to_string(refused.operation.kind), ": ");
    EXPECT_THAT([&] { comm.start(refused.operation); },
                ThrowsMessage<CheckError>(AllOf(StartsWith(start), HasSubstr(refused.why))));
  }
  EXPECT_EQ(comm.traffic(), Traffic{}) << "what is refused is not counted";
}

}  // namespace
}  // namespace ladder
