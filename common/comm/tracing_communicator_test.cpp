#include "common/comm/tracing_communicator.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/paced_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class Tracing : public RankTest {
 protected:
  std::vector<std::string> kinds() const {
    std::vector<std::string> kinds;
    for (const TracedOperation& operation : log_.operations()) kinds.emplace_back(operation.kind);
    return kinds;
  }

  TraceLog log_;
  const TraceScope scope_{&log_};
  TracingCommunicator traced_{comm_.split(0, rank_), log_};
};

TEST_ON_RANKS(Tracing, RecordsWhatWasSentAndWhen) {
  const std::int64_t before_ns = trace_now_ns();
  {
    const Span span("bucket", {"bucket", 7});
    traced_.all_reduce(at::ones({100}))->wait();
  }
  traced_.barrier();
  ASSERT_THAT(kinds(), ElementsAre("all_reduce", "barrier"));
  const TracedOperation& sum = log_.operations()[0];
  EXPECT_STREQ(sum.label, "bucket");
  EXPECT_EQ(sum.label_number.value, 7);
  EXPECT_STREQ(sum.group, "world");
  EXPECT_EQ(sum.number, 0);
  EXPECT_EQ(sum.bytes, 400);
  EXPECT_EQ(sum.sent_bytes, all_reduce_traffic(100, 4, size_, rank_).bytes_sent());
  EXPECT_LE(before_ns, sum.begin_ns);
  EXPECT_LE(sum.begin_ns, sum.wait_begin_ns);
  EXPECT_LE(sum.wait_begin_ns, sum.end_ns);
  const TracedOperation& barrier = log_.operations()[1];
  EXPECT_EQ(barrier.label, nullptr);
  EXPECT_EQ(barrier.number, 1);
  EXPECT_EQ(barrier.bytes, 0);
}

// What a test() has found done does not wait any more, however often that is asked for.
TEST_ON_RANKS(Tracing, AnOperationEndsOnce) {
  const WorkPtr work = traced_.all_reduce(at::ones({1}));
  while (!work->test()) {
  }
  ASSERT_EQ(log_.operations().size(), 1u);
  const std::int64_t end_ns = log_.operations()[0].end_ns;
  EXPECT_TRUE(work->test());
  work->wait();
  ASSERT_EQ(log_.operations().size(), 1u);
  EXPECT_EQ(log_.operations()[0].end_ns, end_ns);
  EXPECT_EQ(log_.operations()[0].wait_begin_ns, 0);
}

// Sender and receiver count alike, for each pair of ranks and each tag.
TEST_ON_RANKS(Tracing, BothEndsOfAMessageHaveItsNumber) {
  if (size_ == 1) return;
  for (const int tag : {4, 5, 4}) {
    const WorkPtr receipt = traced_.recv(at::ones({2}), previous_, tag);
    traced_.send(at::ones({2}), next_, tag)->wait();
    receipt->wait();
  }
  ASSERT_THAT(kinds(), ElementsAre("send", "recv", "send", "recv", "send", "recv"));
  for (std::size_t i = 0; i < 6; ++i) {
    const TracedOperation& message = log_.operations()[i];
    const bool is_send = i % 2 == 0;
    EXPECT_EQ(message.sender, is_send ? rank_ : previous_);
    EXPECT_EQ(message.receiver, is_send ? next_ : rank_);
    EXPECT_EQ(message.tag, i / 2 == 1 ? 5 : 4);
    EXPECT_EQ(message.number, i / 2 == 2 ? 1 : 0);
    EXPECT_EQ(message.sent_bytes, is_send ? 8 : 0);
  }
}

// A simulated link says when, although both ends ask when the message has long been there.
TEST_ON_RANKS(Tracing, AMessageEndsWhenItArrives) {
  if (size_ == 1) return;
  constexpr std::int64_t kLatencyNs = 20'000'000;
  TracingCommunicator traced(
      std::make_unique<PacedCommunicator>(
          comm_.split(0, rank_), Link{.latency_us = kLatencyNs * 1e-3, .gbit_per_s = 1000}),
      log_);
  const WorkPtr receipt = traced.recv(at::ones({2}), previous_, /*tag=*/0);
  const std::int64_t before_ns = trace_now_ns();
  const WorkPtr send = traced.send(at::ones({2}), next_, /*tag=*/0);
  const std::int64_t after_ns = trace_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const std::int64_t asked_ns = trace_now_ns();
  send->wait();
  receipt->wait();
  traced.all_reduce(at::ones({2}))->wait();
  ASSERT_THAT(kinds(), ElementsAre("send", "recv", "all_reduce"));
  const TracedOperation& sent = log_.operations()[0];
  EXPECT_GE(sent.arrival_ns, before_ns + kLatencyNs);
  EXPECT_LE(sent.arrival_ns, after_ns + kLatencyNs + 1000);  // and the time of 8 bytes
  EXPECT_LE(asked_ns, sent.end_ns);
  EXPECT_GT(log_.operations()[1].arrival_ns, 0);
  EXPECT_LE(log_.operations()[1].arrival_ns, log_.operations()[1].end_ns);
  EXPECT_EQ(log_.operations()[2].arrival_ns, 0);
}

// Groups are named for ranks of the world, wherever they were split from, and peers are such.
TEST_ON_RANKS(Tracing, PartsAreNamedForTheirRanks) {
  const auto whole = traced_.split(0, -rank_);  // the other way round
  const auto again = whole->split(0, whole->rank());
  const auto other = again->split(rank_ % 2, rank_);
  EXPECT_EQ(again->split(-1, 0), nullptr);
  std::string all = "ranks", half = "ranks";
  for (int rank = size_ - 1; rank >= 0; --rank) all += concat(" ", rank);
  for (int rank = rank_ % 2; rank < size_; rank += 2) half += concat(" ", rank);
  if (size_ == 1) half += " #3";
  EXPECT_THAT(kinds(), Each("all_gather"));
  whole->barrier();
  EXPECT_EQ(log_.operations().back().group, all);
  again->barrier();
  EXPECT_EQ(log_.operations().back().group, all + " #2");
  other->barrier();
  EXPECT_EQ(log_.operations().back().group, half);
  if (size_ == 1) return;
  const int peer = (whole->rank() + 1) % size_;
  const WorkPtr work = whole->send(at::ones({1}), peer, 0);
  whole->recv(at::ones({1}), (whole->rank() + size_ - 1) % size_, 0)->wait();
  work->wait();
  EXPECT_EQ(log_.operations().back().receiver, size_ - 1 - peer);
}

TEST_ON_RANKS(Tracing, ARefusedCallIsNoOperation) {
  EXPECT_THROW(traced_.send(at::ones({1}), rank_, 0), CheckError);  // to itself
  EXPECT_TRUE(log_.operations().empty());
}

constexpr std::int64_t kAhead_ns = 10'000'000'000;

class ClockOffset : public RankTest {
 protected:
  // Each rank is ten seconds ahead of the one before it.
  ClockReading measure(const std::string& machine) {
    return compare_clocks(comm_, machine, [&] { return trace_now_ns() + rank_ * kAhead_ns; });
  }
};

TEST_ON_RANKS(ClockOffset, IsFoundBetweenMachines) {
  const ClockReading clock = measure(concat("machine ", rank_));
  EXPECT_LE(std::abs(clock.ahead_ns - rank_ * kAhead_ns), clock.error_ns);
  EXPECT_LT(clock.error_ns, kAhead_ns / 10);
  EXPECT_EQ(clock.error_ns > 0, rank_ > 0);
}

TEST_ON_RANKS(ClockOffset, IsNotAskedForOnOneMachine) {
  ClockReading clock;
  const Traffic sent = sent_in(comm_, [&] { clock = measure("machine"); });
  EXPECT_EQ(clock.ahead_ns, 0);
  EXPECT_EQ(clock.error_ns, 0);
  EXPECT_EQ(sent[CommOp::kSend].calls, 0);
}

// The machines have no known names. Rank r's clock runs 1 + r/2 times as fast as rank 0's.
TEST_ON_RANKS(ClockOffset, IsALineWhereClocksDrift) {
  const auto own = [&](std::int64_t ns) { return ns + rank_ * (ns / 2 + kAhead_ns); };
  const auto compare = [&] {
    return compare_clocks(comm_, "", [&] { return own(trace_now_ns()); });
  };
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  TraceClock clock = {.first = compare()};
  sleep();
  const std::int64_t now_ns = trace_now_ns();
  sleep();
  clock.last = compare();
  EXPECT_LE(std::abs(clock.by_rank_0(own(now_ns)) - now_ns),
            3 * (clock.first.error_ns + clock.last.error_ns));
}

TEST_ON_RANKS(ClockOffset, ProcessesOfThisMachineKnowThatTheyAre) {
  EXPECT_FALSE(machine_id().empty());
  EXPECT_EQ(compare_clocks(comm_).ahead_ns, 0);
}

}  // namespace
}  // namespace ladder
