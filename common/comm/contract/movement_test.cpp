#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class Movement : public RankTest {};

const std::vector<at::ScalarType> kAnyDtype = {at::kByte, at::kBool,  at::kShort,        at::kHalf,
                                               at::kLong, at::kFloat, at::kComplexDouble};

at::Tensor counted(std::int64_t begin, std::int64_t numel, at::ScalarType dtype) {
  return at::arange(begin, begin + numel).remainder(113).to(dtype);
}

TEST_ON_RANKS(Movement, AllGatherConcatenatesInRankOrder) {
  for (const at::ScalarType dtype : kAnyDtype) {
    for (const std::int64_t numel : {0, 1, 3, 1000, 20001}) {
      const at::Tensor shard = counted(rank_ * numel, numel, dtype);
      const at::Tensor full = at::zeros({size_ * numel}, dtype);
      comm_.all_gather(shard, full)->wait();
      EXPECT_TRUE(bits_equal(full, counted(0, size_ * numel, dtype))) << dtype << " " << numel;
    }
  }
}

TEST_ON_RANKS(Movement, AllGatherInPlace) {
  const at::Tensor full = at::full({size_, 5}, -1, at::kInt);
  full[rank_].fill_(rank_);
  comm_.all_gather(full[rank_], full)->wait();
  EXPECT_TRUE(bits_equal(full, at::arange(size_, at::kInt).unsqueeze(1).expand({size_, 5})));
}

TEST_ON_RANKS(Movement, BroadcastFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const at::ScalarType dtype : kAnyDtype) {
      for (const std::int64_t numel : {0, 1, 3, 50000}) {
        const at::Tensor tensor =
            rank_ == root ? counted(root, numel, dtype) : at::zeros({numel}, dtype);
        comm_.broadcast(tensor, root)->wait();
        EXPECT_TRUE(bits_equal(tensor, counted(root, numel, dtype))) << root << dtype << numel;
      }
    }
  }
}

TEST_ON_RANKS(Movement, ReceivesOfOneTagAreServedInTheirOrder) {
  if (size_ == 1) return;
  const at::Tensor received = at::zeros({20, 3});
  std::vector<WorkPtr> works;
  for (int i = 0; i < 20; ++i) works.push_back(comm_.recv(received[i], previous_, 5));
  for (int i = 0; i < 20; ++i) {
    works.push_back(comm_.send(at::full({3}, float(i)), next_, 5));
    works[static_cast<std::size_t>(19 - i)]->test();  // polls the later ones first
  }
  for (auto it = works.rbegin(); it != works.rend(); ++it) (*it)->wait();
  EXPECT_TRUE(bits_equal(received, at::arange(20, at::kFloat).unsqueeze(1).expand({20, 3})));
}

// The first collectives of a new group have the tags that its messages have as well.
TEST_ON_RANKS(Movement, PointToPointDoesNotMeetCollectives) {
  if (size_ == 1) return;
  const auto comm = comm_.split(0, rank_);
  const at::Tensor received = at::zeros({4});
  WorkPtr work;  // on tag 0 between ranks 0 and 1, pending during the collectives
  if (rank_ == 1) work = comm->recv(received, 0, 0);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor tensor = at::ones({4 * size_});
    comm->all_reduce(tensor)->wait();
    EXPECT_TRUE(bits_equal(tensor, at::full({4 * size_}, float(size_))));
  }
  if (rank_ == 0) work = comm->send(at::full({4}, 5.0f), 1, 0);
  if (work) work->wait();
  EXPECT_TRUE(bits_equal(received, at::full({4}, rank_ == 1 ? 5.0f : 0.0f)));
}

// A ring of sends does not end with synchronous ones, nor in a group split from them, whatever the
// length: below and above MPI's eager limit, which is 4 kB in Open MPI's shared memory.
TEST_ON_RANKS(Movement, SynchronousSendsAreDoneWhenTheyAreReceived) {
  if (size_ == 1) return;
  World world = synchronous_world();
  const auto part = world.comm().split(0, rank_);
  for (Communicator* const comm : {&world.comm(), part.get()}) {
    for (const std::int64_t numel : {1, 1000, 1001, 200000}) {
      const at::Tensor received = at::zeros({numel});
      const WorkPtr sent = comm->send(at::full({numel}, float(rank_)), next_, 3);
      for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(sent->test()) << numel;
        std::this_thread::yield();
      }
      comm_.barrier();  // until here, no rank receives
      EXPECT_FALSE(sent->test()) << numel;
      comm_.barrier();
      comm->recv(received, previous_, 3)->wait();
      sent->wait();
      EXPECT_TRUE(bits_equal(received, at::full({numel}, float(previous_))));
    }
  }
}

TEST_ON_RANKS(Movement, BarrierIsCountedAndSendsNoPayload) {
  Traffic expected;
  expected[CommOp::kBarrier].calls = 1;
  EXPECT_EQ(sent_in(comm_, [&] { comm_.barrier(); }), expected);
}

TEST_ON_RANKS(Movement, SplitsIntoOddAndEven) {
  std::unique_ptr<Communicator> part;
  const Traffic sent = sent_in(comm_, [&] {
    part = comm_.split(rank_ % 2, /*key=*/rank_);
    const at::Tensor ranks = at::zeros({part->size()}, at::kInt);
    part->all_gather(at::full({1}, rank_, at::kInt), ranks)->wait();
    EXPECT_TRUE(bits_equal(ranks, at::arange(rank_ % 2, size_, 2, at::kInt)));
  });
  EXPECT_EQ(part->size(), (size_ + 1 - rank_ % 2) / 2);
  EXPECT_EQ(part->rank(), rank_ / 2);
  EXPECT_EQ(sent[CommOp::kAllGather].bytes_sent, (part->size() - 1) * 4);
  EXPECT_EQ(sent.bytes_sent(), (part->size() - 1) * 4) << "the split itself is not counted";
  EXPECT_EQ(part->traffic(), comm_.traffic()) << "one meter for all groups of a process";
}

TEST_ON_RANKS(Movement, SplitOrdersByKeyAndLeavesOutNegativeColors) {
  const auto reversed = comm_.split(/*color=*/0, /*key=*/-rank_);
  EXPECT_EQ(reversed->rank(), size_ - 1 - rank_);
  const at::Tensor tensor = at::full({3}, rank_, at::kInt);
  reversed->broadcast(tensor, 0)->wait();
  EXPECT_TRUE(bits_equal(tensor, at::full({3}, size_ - 1, at::kInt)));

  const auto without_first = comm_.split(rank_ == 0 ? -1 : 0, 0);
  if (rank_ == 0) {
    EXPECT_EQ(without_first, nullptr);
  } else {
    EXPECT_EQ(without_first->size(), size_ - 1);
    EXPECT_EQ(all_reduce_sum(1.0, *without_first), size_ - 1.0);
    EXPECT_NE(without_first->split(0, 0), nullptr) << "parts can be split again";
  }
}

}  // namespace
}  // namespace ladder
