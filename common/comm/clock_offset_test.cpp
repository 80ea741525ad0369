#include "common/comm/clock_offset.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kAhead_ns = 10'000'000'000;

class ClockOffset : public RankTest {
 protected:
  // Each rank is ten seconds ahead of the one before it.
  TraceClock measure(const std::string& machine) {
    return measure_clock_offset(comm_, machine, [&] { return trace_now_ns() + rank_ * kAhead_ns; });
  }
};

TEST_ON_RANKS(ClockOffset, IsFoundBetweenMachines) {
  const TraceClock clock = measure(concat("machine ", rank_));
  EXPECT_LE(std::abs(clock.ahead_ns - rank_ * kAhead_ns), clock.error_ns);
  EXPECT_LT(clock.error_ns, kAhead_ns / 10);
  EXPECT_EQ(clock.error_ns > 0, rank_ > 0);
}

TEST_ON_RANKS(ClockOffset, IsAskedForWhereTheMachineIsUnknown) {
  const TraceClock clock = measure("");
  EXPECT_LE(std::abs(clock.ahead_ns - rank_ * kAhead_ns), clock.error_ns);
}

TEST_ON_RANKS(ClockOffset, IsNotAskedForOnOneMachine) {
  const Traffic before = comm_.traffic();
  const TraceClock clock = measure("machine");
  EXPECT_EQ(clock.ahead_ns, 0);
  EXPECT_EQ(clock.error_ns, 0);
  Traffic sent = comm_.traffic();
  sent -= before;
  EXPECT_EQ(sent[CommOp::kSend].calls, 0);
}

TEST_ON_RANKS(ClockOffset, ProcessesOfThisMachineKnowThatTheyAre) {
  EXPECT_FALSE(machine_id().empty());
  EXPECT_EQ(measure_clock_offset(comm_).ahead_ns, 0);
}

}  // namespace
}  // namespace ladder
