// What a link adds to the contract of communicators, for which comm_test --paced runs all tests.
#include "common/comm/paced_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/ring_test.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParseLink, ReadsLatencyAndBandwidth) {
  EXPECT_EQ(parse_link("50:1"), (Link{.latency_us = 50, .gbit_per_s = 1}));
  EXPECT_EQ(parse_link("0:0.25"), (Link{.latency_us = 0, .gbit_per_s = 0.25}));
  EXPECT_EQ(parse_link("1.5e3:100"), (Link{.latency_us = 1500, .gbit_per_s = 100}));
  EXPECT_TRUE(parse_link("0:1").is_on());
  EXPECT_FALSE(Link().is_on());
}

TEST(ParseLink, NamesTheOptionTheFormAndTheValue) {
  const auto refuses = [](const std::string& text, const std::string& reason) {
    EXPECT_THAT(
        [&] { parse_link(text); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr(concat("--link is '", text, "': ", reason)),
                                        HasSubstr("LATENCY_US:GBPS, for example 50:1"))))
        << text;
  };
  for (const std::string text : {"", "50", "fast", "50;1"}) refuses(text, "the colon is missing");
  for (const std::string text : {":", "50:", ":1", "a:1", "50:b", "50:1:1", "50: 1", "50:1Gbit",
                                 "0x10:1", "1e999:1", "5 0:1"}) {
    refuses(text, "it is not two numbers");
  }
  refuses("-50:1", "the latency is -50 us, it must be between 0 and");
  for (const std::string text : {"inf:1", "nan:1", "1e9:1"}) refuses(text, "the latency is");
  refuses("50:0", "the bandwidth is 0 Gbit/s, it must be at least");
  for (const std::string text : {"50:-1", "50:inf", "50:nan", "50:1e-9"}) {
    refuses(text, "the bandwidth is");
  }
}

// The links below are much slower than any machine, so a busy one does not matter. Operations that
// should be fast get this much extra time.
constexpr double kGraceSeconds = 1;

class Paced : public RingTest {
 protected:
  std::unique_ptr<Communicator> paced_group(Link link) const {
    auto group = std::make_unique<PacedCommunicator>(comm_.split(0, 0), link);
    comm_.barrier();
    return group;
  }
  // A link that needs this long for the messages of an all_reduce.
  Link all_reduce_in(double seconds) const {
    return {.latency_us = seconds * 1e6 / std::max(1, 2 * (size_ - 1)), .gbit_per_s = 1000};
  }
  // The seconds that the link needs to send this rank's messages.
  static double seconds_on(Link link, const Traffic& sent) {
    std::int64_t num_messages = 0;
    for (const OpTraffic& op : sent.ops) num_messages += op.messages;
    return static_cast<double>(num_messages) * link.latency_us / 1e6 +
           static_cast<double>(sent.bytes_sent()) * 8 / (link.gbit_per_s * 1e9);
  }
};

constexpr Link kFast = {.latency_us = 1, .gbit_per_s = 100};
constexpr Link kSlow = {.latency_us = 10e3, .gbit_per_s = 0.004};  // 10 ms and 0.5 MB/s

TEST_ON_RANKS(Paced, EveryOperationTakesTheTimeOfItsLink) {
  const auto paced = paced_group(kSlow);
  // `sent` by the rank whose link decides. It may start before this rank has left the barrier.
  const auto expect_time = [&](const Traffic& sent, const std::function<WorkPtr()>& start) {
    const Timer timer;
    comm_.barrier();
    const WorkPtr work = start();
    EXPECT_LT(timer.seconds(), kGraceSeconds) << "starting does not wait";
    work->wait();
    const double needed = seconds_on(kSlow, sent);
    EXPECT_GE(timer.seconds(), needed);
    EXPECT_LT(timer.seconds(), needed + kGraceSeconds);
    EXPECT_TRUE(work->test());
  };
  const std::int64_t numel = 2000 * size_;  // 8 kB, 16 ms, on each rank
  const at::Tensor full = at::ones({numel});
  const at::Tensor shard = at::ones({2000});
  expect_time(all_reduce_traffic(numel, 4, size_, rank_), [&] { return paced->all_reduce(full); });
  expect_time(reduce_scatter_traffic(numel, 4, size_, rank_),
              [&] { return paced->reduce_scatter(full, shard); });
  expect_time(all_gather_traffic(numel, 4, size_, rank_),
              [&] { return paced->all_gather(shard, full); });
  expect_time(broadcast_traffic(numel, 4, size_, /*rank=*/size_ - 1, /*root=*/size_ - 1),
              [&] { return paced->broadcast(full, size_ - 1); });
  if (size_ == 1) return;  // no rank to send to
  WorkPtr other;
  expect_time(send_traffic(numel, 4), [&] {
    other = paced->recv(full, previous_, 0);
    return paced->send(at::ones({numel}), next_, 0);
  });
  other->wait();
  expect_time(send_traffic(numel, 4), [&] {
    other = paced->send(at::ones({numel}), next_, 0);
    return paced->recv(full, previous_, 0);
  });
  other->wait();
}

// Two operations on one group and one on a group split from it: each is done when the link has
// served it and those before it, in whatever order they are waited for.
TEST_ON_RANKS(Paced, OperationsQueueOnTheLinkOfTheirRank) {
  const auto paced = paced_group(kSlow);
  const auto part = paced->split(0, 0);
  const double needed = seconds_on(kSlow, all_reduce_traffic(8000, 4, size_, rank_));
  comm_.barrier();
  const Timer timer;
  const at::Tensor tensors = at::ones({3, 8000});
  const WorkPtr first = paced->all_reduce(tensors[0]);
  const WorkPtr second = paced->all_reduce(tensors[1]);
  const WorkPtr third = part->all_reduce(tensors[2]);
  third->wait();
  EXPECT_GE(timer.seconds(), 3 * needed);
  first->wait();
  second->wait();
  EXPECT_LT(timer.seconds(), 3 * needed + kGraceSeconds);
  EXPECT_TRUE(bits_equal(tensors, at::full({3, 8000}, float(size_))));
}

TEST_ON_RANKS(Paced, WhatIsRefusedNeverHasTheLink) {
  const auto paced = paced_group({.latency_us = 100e3, .gbit_per_s = 1});
  const Traffic traffic_before = paced->traffic();
  for (int i = 0; i < 50; ++i) {  // they would take 5 s if sent
    EXPECT_THROW(paced->all_gather(at::ones({2}), at::ones({2 * size_ + 1})), CheckError);
    EXPECT_THROW(paced->send(at::ones({2}), rank_, 0), CheckError);
    EXPECT_THROW(paced->recv(at::ones({2}), rank_, 0), CheckError);
    EXPECT_THROW(paced->broadcast(at::ones({2}), size_), CheckError);
    EXPECT_THROW(paced->all_reduce(at::Tensor()), CheckError);
  }
  EXPECT_EQ(paced->traffic(), traffic_before);
  comm_.barrier();
  const Timer timer;
  paced->broadcast(at::ones({1}), 0)->wait();
  EXPECT_LT(timer.seconds(), 0.1 * (size_ - 1) + kGraceSeconds);
}

// A rank computes until test() reports that the operation is done; wait() then has nothing to do.
TEST_ON_RANKS(Paced, ComputationHidesTheLink) {
  const auto paced = paced_group(all_reduce_in(0.3));
  const at::Tensor tensor = values_of(rank_, 5000, at::kFloat);
  const Timer timer;
  const WorkPtr work = paced->all_reduce(tensor);
  int num_computed = 0;
  for (; !work->test(); ++num_computed) {
    const Timer computing;
    while (computing.seconds() < 0.001) {
    }
  }
  if (size_ > 1) {
    EXPECT_GE(timer.seconds(), 0.3);
    EXPECT_GE(num_computed, 10) << "milliseconds; 300 if no other process wants the core";
  }
  EXPECT_LT(timer.seconds(), 0.3 + kGraceSeconds);
  const Timer waiting;
  work->wait();
  EXPECT_LT(waiting.seconds(), 0.2);
  EXPECT_TRUE(bits_equal(tensor, fold_of_all(size_, 5000, at::kFloat)));
}

// Rank 0 waits for its slow link in an operation that is otherwise done, while the other ranks need
// its fold of a later one.
TEST_ON_RANKS(Paced, AWaitingRankMovesOtherOperationsOn) {
  if (size_ == 1) return;
  const auto paced = paced_group(rank_ == 0 ? all_reduce_in(1.0) : kFast);
  const at::Tensor late = values_of(rank_, 3000, at::kFloat);
  const Timer timer;
  const WorkPtr slow = paced->all_reduce(at::ones({size_}));
  WorkPtr fast;
  if (rank_ == 0) {
    fast = comm_.all_reduce(late);
    slow->wait();
    EXPECT_GE(timer.seconds(), 1.0);
    fast->wait();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fast = comm_.all_reduce(late);
    fast->wait();
    EXPECT_LT(timer.seconds(), 0.9) << "waited for rank 0's sleep";
    slow->wait();
  }
  EXPECT_TRUE(bits_equal(late, fold_of_all(size_, 3000, at::kFloat)));
}

TEST_ON_RANKS(Paced, LinksThatAreNoneAreRefused) {
  for (const Link link : {Link{}, Link{.latency_us = 5}, Link{.latency_us = -1, .gbit_per_s = 1}}) {
    EXPECT_THROW(PacedCommunicator(std::make_unique<SelfCommunicator>(), link), CheckError);
  }
  EXPECT_THROW(PacedCommunicator(nullptr, kFast), CheckError);
}

// What arrives waits for the link of the rank that sent it.
constexpr double kSlowSeconds = 0.5;  // on a slow link
constexpr double kSoon = 0.45;        // without one, even on a busy machine

class PacedArrival : public RingTest {
 protected:
  // The link of `slow_rank`, and of no other rank, needs kSlowSeconds for this many messages.
  std::unique_ptr<Communicator> group_with_slow(int slow_rank, int num_messages) const {
    const Link slow = {.latency_us = kSlowSeconds * 1e6 / num_messages, .gbit_per_s = 1000};
    return std::make_unique<PacedCommunicator>(comm_.split(0, 0),
                                               rank_ == slow_rank ? slow : kFast);
  }
  // The seconds from before any rank has started until all of this is done on this rank.
  double seconds_of(const std::function<void()>& act) const {
    const Timer timer;
    comm_.barrier();
    act();
    const double seconds = timer.seconds();
    comm_.barrier();
    return seconds;
  }
};

// Rank 0 sends three messages over its slow link and gets one over a fast link.
TEST_ON_RANKS(PacedArrival, AReceiveWaitsForTheLinkOfItsSender) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, 1);
  const at::Tensor received = at::zeros({3, 4});
  const double seconds = seconds_of([&] {
    const Timer timer;
    if (rank_ == 0) {
      std::vector<WorkPtr> sends;
      for (int i = 0; i < 3; ++i) sends.push_back(paced->send(at::full({4}, float(i)), 1, i / 2));
      paced->recv(received[0], 1, 0)->wait();
      EXPECT_LT(timer.seconds(), kSoon) << "from a fast link";
      for (const WorkPtr& send : sends) send->wait();
    }
    if (rank_ == 1) {
      paced->send(at::ones({4}), 0, 0)->wait();
      const WorkPtr third = paced->recv(received[2], 0, 1);  // of another tag
      const WorkPtr first = paced->recv(received[0], 0, 0);
      const WorkPtr second = paced->recv(received[1], 0, 0);
      EXPECT_FALSE(second->test());
      first->wait();
      EXPECT_FALSE(third->test()) << "the messages queue on the sender's link";
      second->wait();
      EXPECT_LT(timer.seconds(), 2 * kSlowSeconds + kSoon) << "does not wait for the third";
      third->wait();
      EXPECT_TRUE(third->test());
    }
  });
  if (rank_ <= 1) {
    EXPECT_GE(seconds, 3 * kSlowSeconds);
  }
  if (rank_ == 1) {
    EXPECT_TRUE(
        bits_equal(received, at::arange(3, at::kFloat).unsqueeze(1).expand({3, 4}).contiguous()));
  }
}

TEST_ON_RANKS(PacedArrival, ABroadcastWaitsForTheLinkOfItsRoot) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, size_ - 1);
  const at::Tensor tensor = at::full({3}, float(rank_));
  EXPECT_LT(seconds_of([&] { paced->broadcast(tensor, size_ - 1)->wait(); }), kSoon);
  EXPECT_LT(seconds_of([&] { paced->barrier(); }), kSoon);
  EXPECT_TRUE(bits_equal(tensor, at::full({3}, size_ - 1.0f)));
  tensor.fill_(rank_);
  EXPECT_GE(seconds_of([&] { paced->broadcast(tensor, 0)->wait(); }), kSlowSeconds);
  EXPECT_TRUE(bits_equal(tensor, at::zeros({3})));
}

TEST_ON_RANKS(PacedArrival, ASumWaitsForTheSlowestLink) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(size_ - 1, size_ - 1);
  const at::Tensor full = at::ones({2 * size_});
  const at::Tensor shard = at::zeros({2});
  EXPECT_GE(seconds_of([&] { paced->all_reduce(full)->wait(); }), 2 * kSlowSeconds);
  EXPECT_GE(seconds_of([&] { paced->reduce_scatter(full, shard)->wait(); }), kSlowSeconds);
  EXPECT_GE(seconds_of([&] { paced->all_gather(shard, full)->wait(); }), kSlowSeconds);
  EXPECT_TRUE(bits_equal(full, at::full({2 * size_}, float(size_ * size_))));
  // An operation waits for the sends that are before it on the slow link.
  const double after_a_send = seconds_of([&] {
    WorkPtr busy;
    if (rank_ == size_ - 1) busy = paced->send(shard, 0, 0);
    paced->reduce_scatter(full, at::zeros({2}))->wait();
    if (rank_ == 0) paced->recv(shard, size_ - 1, 0)->wait();
    if (busy != nullptr) busy->wait();
  });
  EXPECT_GE(after_a_send, kSlowSeconds + kSlowSeconds / (size_ - 1));
}

TEST_ON_RANKS(PacedArrival, WaitingForAMessageFreesTheCore) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, 1);
  const at::Tensor tensor = at::zeros({4});
  const WorkPtr work = rank_ == 0   ? paced->send(tensor, 1, 0)
                       : rank_ == 1 ? paced->recv(tensor, 0, 0)
                                    : nullptr;
  comm_.barrier();
  const std::clock_t before = std::clock();
  if (work != nullptr) work->wait();
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_seconds, kSlowSeconds / 2);
}

// Nothing is buffered, so a send that waited for its receiver would wait forever.
TEST_ON_RANKS(PacedArrival, StartingNeverWaitsForTheOtherRank) {
  if (size_ == 1) return;
  World synchronous = synchronous_world();
  PacedCommunicator paced(synchronous.comm().split(0, 0), kFast);
  for (const std::int64_t numel : {1, 3, 5000}) {
    const at::Tensor received = at::zeros({numel});
    const at::Tensor sum = values_of(rank_, numel, at::kFloat);
    const WorkPtr sent = paced.send(at::full({numel}, float(rank_)), next_, 0);
    const WorkPtr reduced = paced.all_reduce(sum);
    EXPECT_FALSE(sent->test());
    comm_.barrier();  // until here, no rank receives
    const WorkPtr arriving = paced.recv(received, previous_, 0);
    sent->wait();
    arriving->wait();
    reduced->wait();
    EXPECT_TRUE(bits_equal(received, at::full({numel}, float(previous_))));
    EXPECT_TRUE(bits_equal(sum, fold_of_all(size_, numel, at::kFloat)));
  }
}

}  // namespace
}  // namespace ladder
