// Operations of all kinds, on several groups at once, that every rank starts in the same order, and
// tests and waits for in an order of its own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/seed.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

// What one operation left behind, and what it should have.
struct Started {
  std::string what;
  WorkPtr work;
  at::Tensor result;
  at::Tensor expected;
};

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

  // From each rank to the next one, in a ring.
  void start_messages(Random& random, std::uint64_t seed, std::vector<Started>& all) const {
    if (size_ == 1) return;
    const int previous = (rank_ + size_ - 1) % size_;
    const int tag = any(random, 2);
    const std::int64_t numel = any(random, 3000);
    const at::Tensor sent = values_of(rank_, numel, at::kFloat, seed);
    const at::Tensor received = at::zeros({numel});
    const auto send = [&] {
      all.push_back({"send", comm_.send(sent, (rank_ + 1) % size_, tag), sent, sent.clone()});
    };
    if (rank_ % 2 == 0) send();
    all.push_back({"recv", comm_.recv(received, previous, tag), received,
                   values_of(previous, numel, at::kFloat, seed)});
    if (rank_ % 2 == 1) send();
  }

  // Waits for one of them, checks it and forgets it.
  void finish(std::vector<Started>& all, std::size_t index) const {
    all[index].work->wait();
    EXPECT_TRUE(bits_equal(all[index].result, all[index].expected)) << all[index].what;
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
  }
};

TEST_ON_RANKS(Disorder, ChangesNoBit) {
  const auto part = comm_.split(rank_ % 2, rank_);
  const auto reversed = comm_.split(0, -rank_);
  Communicator* const groups[] = {&comm_, part.get(), reversed.get()};
  for (std::uint64_t round = 1; round <= 12; ++round) {
    Random common(derive_seed(round, "the same operations on all ranks"));
    Random own(derive_seed(round * 100 + static_cast<std::uint64_t>(rank_), "an order of its own"));
    std::vector<Started> all;
    for (std::uint64_t i = 1; i <= 25; ++i) {
      const std::uint64_t seed = 100 * round + i;
      if (common.below(3) == 0) {
        start_messages(common, seed, all);
      } else {
        all.push_back(start_collective(*groups[common.below(3)], common, seed));
      }
      if (own.below(2) == 0 && !all.empty()) all[own.below(all.size())].work->test();
      if (own.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(own.below(300)));
      // Whoever is furthest behind waits for what all others have started.
      if (own.below(4) == 0 && !all.empty()) finish(all, own.below(all.size()));
    }
    while (!all.empty()) finish(all, own.below(all.size()));
  }
}

}  // namespace
}  // namespace ladder
