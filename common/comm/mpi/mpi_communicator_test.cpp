// What only the mpi transport does. What all transports do is tested in contract/.
#include "common/comm/mpi/mpi_communicator.hpp"
#include "common/comm/launcher_environment.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/started.hpp"

namespace ladder {
namespace {

class MpiTransport : public ::testing::Test, protected RankTest {};

TEST_F(MpiTransport, WorldKnowsItsLauncher) {
  EXPECT_EQ(test_world().transport(), Transport::kMpi);
  EXPECT_EQ(launched_ranks(), size_);
  EXPECT_EQ(launched_rank(), rank_);
  EXPECT_GE(test_world().local_rank(), 0);
  EXPECT_LE(test_world().local_rank(), rank_);
}

// Ranks on two machines are in tests/two_machines_test.cpp.
TEST_F(MpiTransport, RanksOnOneMachineNeedNoMessageToKnowIt) {
  std::vector<int> machines;
  const Traffic sent = sent_in(comm_, [&] { machines = test_world().machine_of_rank(); });
  EXPECT_EQ(machines, std::vector<int>(static_cast<std::size_t>(size_), 0));
  EXPECT_EQ(sent, Traffic());
}

TEST_F(MpiTransport, ScratchIsTheOtherRanksPiecesAndGoesAway) {
  install_memory_ledger();
  const at::Tensor tensor = at::ones({size_ * 1000});
  const MemoryReading before = read_memory();
  reset_memory_peaks();
  const WorkPtr work = comm_.all_reduce(tensor);
  work->wait();
  const MemoryReading after = read_memory();
  EXPECT_EQ(after.live(MemoryCategory::kCommunication),
            before.live(MemoryCategory::kCommunication));
  EXPECT_EQ(after.peak_bytes - before.total_live_bytes, (size_ - 1) * 4000);
}

// A limit of 42 bytes stands in for MPI's 2 GiB. Sizes are such that pieces end inside elements.
TEST_F(MpiTransport, LongMessagesTravelInPieces) {
  const auto comm = mpi_communicator({.message_bytes = 42});
  for (const std::int64_t numel : {1, 10, 21, 1000}) {
    const at::Tensor full = values_of(rank_, numel * size_, at::kDouble);
    const at::Tensor shard = at::zeros({numel}, at::kDouble);
    const Traffic sent = sent_in(*comm, [&] {
      comm->reduce_scatter(full, shard)->wait();
      comm->all_gather(shard, full)->wait();
    });
    EXPECT_TRUE(bits_equal(full, fold_of_all(size_, numel * size_, at::kDouble))) << numel;
    const OpTraffic expected = {1, (size_ - 1) * numel * 8, (size_ - 1) * ((numel * 8 + 41) / 42)};
    EXPECT_EQ(sent[CommOp::kReduceScatter], expected) << numel;
    EXPECT_EQ(sent[CommOp::kAllGather], expected) << numel;
  }
  const auto part = comm->split(0, 0);  // with the same limits
  part->broadcast(at::zeros({43}, at::kByte), 0)->wait();
  EXPECT_EQ(comm->traffic()[CommOp::kBroadcast].messages, rank_ == 0 ? 2 * (size_ - 1) : 0);
}

void finish_last_first(const std::vector<Started>& all) {
  for (auto it = all.rbegin(); it != all.rend(); ++it) it->finish();
}

TEST_F(MpiTransport, TagsAreUsedAgain) {
  const auto comm = mpi_communicator({.num_tags = 3});
  for (int round = 0; round < 3; ++round) {
    std::vector<Started> sums;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      sums.push_back(start_sum(*comm, seed));
      if (static_cast<int>(seed % 7) == rank_) sums.front().work->wait();
    }
    finish_last_first(sums);
  }
}

// The link time of a paced message travels under the message's own tag, so every tag of the inner
// communicator is free, and collectives take turns with few tags, too.
TEST_F(MpiTransport, APacedOneHasTheSameTags) {
  PacedCommunicator paced(mpi_communicator({.num_tags = 3}),
                          Link{.latency_us = 1, .gbit_per_s = 100});
  const at::Tensor received = at::zeros({2});
  if (size_ > 1) {
    const WorkPtr sent = paced.send(at::full({2}, float(rank_)), next_, 2);
    paced.recv(received, previous_, 2)->wait();
    sent->wait();
    EXPECT_TRUE(bits_equal(received, at::full({2}, float(previous_))));
    EXPECT_THROW(paced.send(received, next_, 3), CheckError);
    EXPECT_THROW(paced.recv(received, previous_, 3), CheckError);
  }
  std::vector<Started> sums;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) sums.push_back(start_sum(paced, seed));
  finish_last_first(sums);
}

}  // namespace
}  // namespace ladder
