#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class Progress : public RankTest {
 protected:
  // An all_reduce in flight whose result is known in advance.
  struct Started {
    std::uint64_t seed;
    at::Tensor tensor;
    WorkPtr work;
  };
  Started start(Communicator& comm, std::uint64_t seed) const {
    const std::int64_t numel = static_cast<std::int64_t>(seed * 977 % 20011);
    Started started{seed, values_of(comm.rank(), numel, at::kFloat, seed), nullptr};
    started.work = comm.all_reduce(started.tensor);
    return started;
  }
  static void expect_sum(const Started& started, Communicator& comm) {
    EXPECT_TRUE(bits_equal(
        started.tensor, fold_of_all(comm.size(), started.tensor.numel(), at::kFloat, started.seed)))
        << "all_reduce " << started.seed;
  }
};

TEST_ON_RANKS(Progress, ManyInFlightAreWaitedForInAnyOrder) {
  std::vector<Started> all;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) all.push_back(start(comm_, seed));
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    it->work->wait();
    it->work->wait();  // a second wait() has no effect
    EXPECT_TRUE(it->work->test());
    expect_sum(*it, comm_);
  }
}

TEST_ON_RANKS(Progress, TestAloneFinishes) {
  std::vector<Started> all;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) all.push_back(start(comm_, seed));
  for (const Started& started : all) {
    while (!started.work->test()) std::this_thread::yield();
    expect_sum(started, comm_);
  }
}

TEST_ON_RANKS(Progress, BarrierAndSplitMoveOperationsOn) {
  const Started first = start(comm_, 5);
  if (rank_ == 0) first.work->wait();  // before the others have come out of the barrier
  comm_.barrier();
  const Started second = start(comm_, 6);
  if (rank_ == 0) second.work->wait();
  const auto part = comm_.split(0, 0);
  first.work->wait();
  second.work->wait();
  expect_sum(first, comm_);
  expect_sum(second, comm_);
}

TEST_ON_RANKS(Progress, WorkOutlivesItsCommunicator) {
  auto comm = comm_.split(0, 0);
  const Started started = start(*comm, 8);
  comm.reset();
  started.work->wait();
  expect_sum(started, comm_);
}

TEST_ON_RANKS(Progress, LateRanksAreWaitedFor) {
  if (rank_ == size_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(all_reduce_sum(1.0, comm_), size_);
}

}  // namespace
}  // namespace ladder
