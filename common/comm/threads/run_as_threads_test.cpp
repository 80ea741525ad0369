#include "common/comm/threads/run_as_threads.hpp"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "common/core/check.hpp"

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

TEST(RunAsThreads, RunsTheRanksAtTheSameTime) {
  int num_done = 0;
  run_as_threads(3, [&](Communicator& comm) {
    comm.barrier();
    const double sum = all_reduce_sum(1.0, comm);
    if (comm.rank() == 0) num_done = static_cast<int>(sum);
  });
  EXPECT_EQ(num_done, 3);
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

TEST(RunAsThreads, ThrowsWhatTheFirstRankThrew) {
  EXPECT_THAT(failing(CheckError("no data")), ThrowsMessage<CheckError>("rank 2: no data"));
  EXPECT_THAT(failing(UsageError("--lr is -1")), ThrowsMessage<UsageError>("rank 2: --lr is -1"));
  EXPECT_THAT(failing(std::runtime_error("odd")), ThrowsMessage<CheckError>("rank 2: odd"));
  EXPECT_THAT(failing(CheckError("rank 2 of 3: send: no")),
              ThrowsMessage<CheckError>("rank 2 of 3: send: no"))
      << "named once";
  EXPECT_THROW(failing(17)(), int);
}

TEST(RunAsThreads, RefusesNoRanks) {
  EXPECT_THROW(run_as_threads(0, [](Communicator&) {}), CheckError);
}

}  // namespace
}  // namespace ladder
