#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
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

TEST_ON_RANKS(Progress, DifferentRanksWaitInDifferentOrders) {
  std::vector<Started> all;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) all.push_back(start(comm_, seed));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t turn = static_cast<std::size_t>(rank_) * 5;
    const Started& started = all[(i + turn) % all.size()];
    started.work->wait();
    expect_sum(started, comm_);
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

// Rank 0 waits for the first group's operation, the others for the second's: each needs the other's
// fold.
TEST_ON_RANKS(Progress, GroupsMoveEachOtherOn) {
  const auto other = comm_.split(0, 0);
  const Started first = start(comm_, 3);
  const Started second = start(*other, 4);
  const bool is_even = rank_ % 2 == 0;
  (is_even ? first : second).work->wait();
  (is_even ? second : first).work->wait();
  expect_sum(first, comm_);
  expect_sum(second, *other);
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

TEST_ON_RANKS(Progress, CollectivesOfDifferentKindsDoNotMix) {
  const at::Tensor sum = values_of(rank_, 3000, at::kFloat);
  const at::Tensor shard = at::zeros({1000});
  const at::Tensor gathered = at::zeros({1000 * size_});
  const at::Tensor from_last = at::full({1000}, rank_ == size_ - 1 ? 9.0f : 0.0f);
  const WorkPtr a = comm_.all_reduce(sum);
  const WorkPtr b = comm_.reduce_scatter(values_of(rank_, 1000 * size_, at::kFloat, 2), shard);
  const WorkPtr c = comm_.all_gather(values_of(rank_, 1000, at::kFloat, 3), gathered);
  const WorkPtr d = comm_.broadcast(from_last, size_ - 1);
  for (const WorkPtr* work : {&d, &c, &b, &a}) (*work)->wait();
  EXPECT_TRUE(bits_equal(sum, fold_of_all(size_, 3000, at::kFloat)));
  EXPECT_TRUE(bits_equal(
      shard, fold_of_all(size_, 1000 * size_, at::kFloat, 2).narrow(0, 1000 * rank_, 1000)));
  for (int r = 0; r < size_; ++r) {
    EXPECT_TRUE(bits_equal(gathered.narrow(0, 1000 * r, 1000), values_of(r, 1000, at::kFloat, 3)));
  }
  EXPECT_TRUE(bits_equal(from_last, at::full({1000}, 9.0f)));
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
