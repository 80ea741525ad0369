// Operations make progress while nobody waits for them, and in any order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/seed.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/started.hpp"

namespace ladder {
namespace {

class Progress : public RankTest {};

TEST_ON_RANKS(Progress, ManyInFlightAreWaitedForInAnyOrder) {
  std::vector<Started> all;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) all.push_back(start_sum(comm_, seed));
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    it->work->wait();
    EXPECT_TRUE(it->work->test());
    it->finish();  // a second wait() has no effect
  }
}

TEST_ON_RANKS(Progress, TestAloneFinishes) {
  std::vector<Started> all;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) all.push_back(start_sum(comm_, seed));
  for (const Started& sum : all) {
    while (!sum.work->test()) std::this_thread::yield();
    EXPECT_TRUE(bits_equal(sum.result, sum.expected)) << sum.what;
  }
}

TEST_ON_RANKS(Progress, BarrierAndSplitMoveOperationsOn) {
  const Started first = start_sum(comm_, 5);
  if (rank_ == 0) first.work->wait();  // before the others have come out of the barrier
  comm_.barrier();
  const Started second = start_sum(comm_, 6);
  if (rank_ == 0) second.work->wait();
  const auto part = comm_.split(0, 0);
  first.finish();
  second.finish();
}

TEST_ON_RANKS(Progress, WorkOutlivesItsCommunicator) {
  auto comm = comm_.split(0, 0);
  const Started sum = start_sum(*comm, 8);
  comm.reset();
  sum.finish();
}

TEST_ON_RANKS(Progress, LateRanksAreWaitedFor) {
  if (rank_ == size_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(all_reduce_sum(1.0, comm_), size_);
}

// Operations of all kinds, on several groups at once, that every rank starts in the same order, and
// tests and waits for in an order of its own.
class Disorder : public RankTest {
 protected:
  int any(Random& random, int bound) const {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
  }

  // The same random numbers on all ranks give the same operation.
  Started start_collective(Communicator& comm, Random& random, std::uint64_t seed) const {
    const int rank = comm.rank();
    const int size = comm.size();
    const auto dtype = kReducible[random.below(kReducible.size())];
    const std::int64_t numel = any(random, 3000);
    const std::int64_t begin = numel * rank;
    const at::Tensor values = values_of(rank, numel * size, dtype, seed);
    const int kind = any(random, 4);
    const int root = any(random, 60) % size;
    switch (kind) {
      case 0:
        return {"all_reduce", comm.all_reduce(values), values,
                fold_of_all(size, numel * size, dtype, seed)};
      case 1: {
        const at::Tensor shard =
            root % 2 == 0 ? values.narrow(0, begin, numel) : at::zeros({numel}, dtype);
        return {"reduce_scatter", comm.reduce_scatter(values, shard), shard,
                fold_of_all(size, numel * size, dtype, seed).narrow(0, begin, numel)};
      }
      case 2: {
        const at::Tensor everything = values_of(0, numel * size, dtype, seed);
        const at::Tensor full = at::zeros({numel * size}, dtype);
        return {"all_gather", comm.all_gather(everything.narrow(0, begin, numel), full), full,
                everything};
      }
      default:
        return {"broadcast", comm.broadcast(values, root), values,
                values_of(root, numel * size, dtype, seed)};
    }
  }

  // Each rank sends to the next one, in a ring.
  void start_messages(Communicator& comm, Random& random, std::uint64_t seed,
                      std::vector<Started>& all) const {
    if (size_ == 1) return;
    const int tag = any(random, 2);
    const std::int64_t numel = any(random, 3000);
    const at::Tensor sent = values_of(rank_, numel, at::kFloat, seed);
    const at::Tensor received = at::zeros({numel});
    const auto send = [&] {
      all.push_back({"send", comm.send(sent, next_, tag), sent, sent.clone()});
    };
    if (rank_ % 2 == 0) send();
    all.push_back({"recv", comm.recv(received, previous_, tag), received,
                   values_of(previous_, numel, at::kFloat, seed)});
    if (rank_ % 2 == 1) send();
  }

  static void finish_one(std::vector<Started>& all, std::size_t index) {
    all[index].finish();
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
  }
};

// In every other round, a send is done only when it is received.
TEST_ON_RANKS(Disorder, ChangesNoBit) {
  World synchronous = synchronous_world();
  for (std::uint64_t round = 1; round <= 12; ++round) {
    Communicator& all_ranks = round % 2 == 0 ? synchronous.comm() : comm_;
    const auto part = all_ranks.split(rank_ % 2, rank_);
    const auto reversed = all_ranks.split(0, -rank_);
    Communicator* const groups[] = {&all_ranks, part.get(), reversed.get()};
    Random common(derive_seed(round, "the same operations on all ranks"));
    Random own(derive_seed(round * 100 + static_cast<std::uint64_t>(rank_), "an order of its own"));
    std::vector<Started> all;
    for (std::uint64_t i = 1; i <= 25; ++i) {
      const std::uint64_t seed = 100 * round + i;
      if (common.below(3) == 0) {
        start_messages(all_ranks, common, seed, all);
      } else {
        all.push_back(start_collective(*groups[common.below(3)], common, seed));
      }
      if (own.below(2) == 0 && !all.empty()) all[own.below(all.size())].work->test();
      if (own.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(own.below(300)));
      // Whoever is furthest behind waits for what all others have started.
      if (own.below(4) == 0 && !all.empty()) finish_one(all, own.below(all.size()));
    }
    while (!all.empty()) finish_one(all, own.below(all.size()));
  }
}

}  // namespace
}  // namespace ladder
