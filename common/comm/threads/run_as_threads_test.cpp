#include "common/comm/threads/run_as_threads.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

using ::testing::ThrowsMessage;

TEST(RunAsThreads, GivesEachThreadARank) {
  for (const int num_ranks : {1, 2, 5}) {
    std::vector<std::thread::id> threads(static_cast<std::size_t>(num_ranks));
    run_as_threads(num_ranks, [&](Communicator& comm) {
      EXPECT_EQ(comm.size(), num_ranks);
      EXPECT_EQ(at::get_num_threads(), 1);
      threads[static_cast<std::size_t>(comm.rank())] = std::this_thread::get_id();
    });
    const std::set<std::thread::id> different(threads.begin(), threads.end());
    EXPECT_EQ(different.size(), static_cast<std::size_t>(num_ranks));
    EXPECT_FALSE(different.contains(std::thread::id()));
    EXPECT_FALSE(different.contains(std::this_thread::get_id()));
  }
}

// Throws on rank 2; the others wait for it.
template <class Error>
auto failing(Error error) {
  return [error] {
    run_as_threads(3, [&](Communicator& comm) {
      if (comm.rank() == 2) throw error;
      comm.barrier();
    });
  };
}

TEST(RunAsThreads, ThrowsWhatTheFirstRankThrewAndRefusesNoRanks) {
  EXPECT_THAT(failing(CheckError("no data")), ThrowsMessage<CheckError>("rank 2: no data"));
  EXPECT_THAT(failing(UsageError("--lr is -1")), ThrowsMessage<UsageError>("rank 2: --lr is -1"));
  EXPECT_THAT(failing(std::runtime_error("odd")), ThrowsMessage<CheckError>("rank 2: odd"));
  EXPECT_THAT(failing(CheckError("rank 2 of 3: send: no")),
              ThrowsMessage<CheckError>("rank 2 of 3: send: no"))
      << "named once";
  EXPECT_THROW(failing(17)(), int);
  EXPECT_THROW(run_as_threads(0, [](Communicator&) {}), CheckError);
}

constexpr int kNumRanks = 3;
constexpr int kEnding = 1;  // the rank that ends

// A rank that fails, or returns early, never leaves the others waiting. Every operation, as one
// that cannot be done without rank kEnding.
std::vector<Operation> operations() {
  const at::Tensor shard = at::ones({4}), full = at::ones({4 * kNumRanks});
  return {{CommOp::kAllReduce, shard},
          {CommOp::kReduceScatter, full, shard},
          {CommOp::kAllGather, full, shard},
          {CommOp::kBroadcast, shard, {}, kEnding},
          {CommOp::kSend, shard, {}, kEnding},
          {CommOp::kRecv, shard, {}, kEnding},
          {CommOp::kBarrier}};
}

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

// The other ranks wait already, or are about to.
TEST(AThreadThatEnds, WakesThoseThatWait) {
  for (std::size_t i = 0; i < operations().size(); ++i) {
    for (const auto& [fails, is_late] :
         {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
      const std::string why =
          fails ? "has failed: the disk is full" : "has ended without taking part";
      const auto body = [&, fails = fails, is_late = is_late](Communicator& comm) {
        if (is_late == (comm.rank() == kEnding)) nap();
        if (comm.rank() == kEnding) return check(!fails, "the disk is full");
        const Operation operation = operations()[i];
        const char* const name = to_string(operation.kind);
        EXPECT_THAT([&] { comm.start(operation)->wait(); },
                    ThrowsMessage<CheckError>(
                        concat("rank ", comm.rank(), " of 3: ", name, ": rank 1 of all 3 ", why)));
      };
      const auto run = [&] { run_as_threads(kNumRanks, body); };
      if (fails) {
        EXPECT_THAT(run, ThrowsMessage<CheckError>("rank 1: the disk is full"));
      } else {
        run();
      }
    }
  }
}

// The other ranks wait for each other, and test().
TEST(AThreadThatEnds, WakesThoseThatDoNotNeedIt) {
  const auto body = [](Communicator& comm) {
    const auto part = comm.split(comm.rank() == kEnding ? 0 : 1, 0);
    if (comm.rank() == kEnding) {
      nap();
      throw UsageError("--lr is -1");
    }
    const WorkPtr work = part->recv(at::ones({4}), 1 - part->rank(), 0);
    if (comm.rank() == 0) work->wait();
    while (!work->test()) std::this_thread::yield();
  };
  EXPECT_THAT([&] { run_as_threads(kNumRanks, body); },
              ThrowsMessage<UsageError>("rank 1: --lr is -1"));
}

TEST(AThreadThatEnds, IsNamedByItsNumberInTheProcess) {
  run_as_threads(4, [](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, 0);
    if (comm.rank() == 3) return;
    if (comm.rank() == 1) {
      expect_throws<CheckError>([&] { part->barrier(); },
                                {"rank 0 of 2: barrier: rank 3 of all 4 has"});
    } else {
      EXPECT_EQ(all_reduce_sum(1.0, *part), 2.0) << "the others are not disturbed";
    }
  });
}

}  // namespace
}  // namespace ladder
