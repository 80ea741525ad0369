#include "common/comm/self_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

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
  const at::Tensor two = at::zeros({2});
  const auto expect_error = [](const auto& call, const char* start, const char* part) {
    EXPECT_THAT(call,
                ThrowsMessage<CheckError>(::testing::AllOf(StartsWith(start), HasSubstr(part))));
  };
  expect_error([&] { comm.all_reduce(at::zeros({2}, at::kBool)); },
               "rank 0 of 1: all_reduce: ", "cannot sum Bool");
  expect_error([&] { comm.all_reduce(at::Tensor()); }, "rank 0 of 1: all_reduce: ", "undefined");
  expect_error(
      [&] {
        comm.all_reduce(at::zeros({2, 3}).t());
      },
      "rank 0 of 1: all_reduce: ", "[3, 2] and strides [1, 3]");
  expect_error([&] { comm.all_reduce(at::empty({2}, at::kMeta)); },
               "rank 0 of 1: all_reduce: ", "meta");
  expect_error([&] { comm.all_gather(two, at::zeros({3})); },
               "rank 0 of 1: all_gather: ", "full has 3 elements and the shard 2");
  expect_error([&] { comm.reduce_scatter(two, at::zeros({2}, at::kDouble)); },
               "rank 0 of 1: reduce_scatter: ", "full is Float but the shard is Double");
  expect_error([&] { comm.broadcast(two, 1); }, "rank 0 of 1: broadcast: ", "no root 1");
  expect_error([&] { comm.send(two, 0, 0); }, "rank 0 of 1: send: ", "its own peer, got peer 0");
  expect_error([&] { comm.recv(two, 1, 0); }, "rank 0 of 1: recv: ", "no peer 1");
  EXPECT_EQ(comm.traffic(), Traffic{}) << "what is refused is not counted";
}

}  // namespace
}  // namespace ladder
