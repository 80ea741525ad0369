// What a link adds to the contract of communicators, for which comm_test --paced runs all tests.
#include "common/comm/paced_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

TEST(ParseLink, ReadsLatencyAndBandwidth) {
  EXPECT_EQ(parse_link("50:1"), (Link{.latency_us = 50, .gbit_per_s = 1}));
  EXPECT_EQ(parse_link("0:0.25"), (Link{.latency_us = 0, .gbit_per_s = 0.25}));
  EXPECT_EQ(parse_link("1.5e3:100"), (Link{.latency_us = 1500, .gbit_per_s = 100}));
  EXPECT_TRUE(parse_link("0:1").is_on());
  EXPECT_FALSE(Link().is_on());
}

TEST(ParseLink, NamesTheOptionTheFormAndTheValue) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> refused = {
      {"the colon is missing", {"", "50", "fast", "50;1"}},
      {"it is not two numbers",
       {":", "50:", ":1", "a:1", "50:b", "50:1:1", "50: 1", "50:1Gbit", "0x10:1", "1e999:1",
        "5 0:1"}},
      {"the latency is -50 us, it must be between 0 and", {"-50:1"}},
      {"the latency is", {"inf:1", "nan:1", "1e9:1"}},
      {"the bandwidth is 0 Gbit/s, it must be at least", {"50:0"}},
      {"the bandwidth is", {"50:-1", "50:inf", "50:nan", "50:1e-9"}}};
  for (const auto& [reason, texts] : refused) {
    for (const std::string& text : texts) {
      expect_throws<UsageError>(
          [&] { parse_link(text); },
          {concat("--link is '", text, "': ", reason), "LATENCY_US:GBPS, for example 50:1"});
    }
  }
}

TEST(LinkSeconds, AreALatencyPerRoundAndTheBytesAtItsBandwidth) {
  const LinkUse use = {.rounds = 3, .bytes = 1000};
  EXPECT_DOUBLE_EQ(link_seconds(Link{.latency_us = 10, .gbit_per_s = 2}, use), 34e-6);
  EXPECT_EQ(link_seconds(Link(), use), 0);
}

// Of one operation the links take turns; those of several overlap, each link in its own order.
TEST(LinkQueues, AreBusyAtOnceWithSeveralOperations) {
  LinkQueues queues(
      {Link{.latency_us = 1e6, .gbit_per_s = 1}, {.latency_us = 5e6, .gbit_per_s = 1}});
  const LinksUse both = {.inside = {.rounds = 2}, .outside = {.rounds = 1}};
  EXPECT_DOUBLE_EQ(queues.occupy(10, both), 17);
  EXPECT_DOUBLE_EQ(queues.occupy(10, both), 22) << "inside from 12 to 14, outside from 17";
  EXPECT_DOUBLE_EQ(queues.occupy(10, {.inside = {.rounds = 1}}), 15) << "passes what is outside";
  EXPECT_DOUBLE_EQ(queues.occupy(10, {.outside = {.rounds = 1}}), 27);
  EXPECT_DOUBLE_EQ(queues.occupy(30, both), 37) << "both have been idle";
  EXPECT_DOUBLE_EQ(queues.occupy(30, {}), 30) << "nothing is sent, and waits for nothing";
}

// The links below are much slower than any machine, so a busy one does not matter. Operations that
// should be fast get this much extra time.
constexpr double kGraceSeconds = 1;
constexpr Link kFast = {.latency_us = 1, .gbit_per_s = 100};
constexpr Link kSlow = {.latency_us = 10e3, .gbit_per_s = 0.004};  // 10 ms and 0.5 MB/s

// A link that needs this long for so many rounds.
constexpr Link link_that_takes(double seconds, int num_rounds) {
  return {.latency_us = seconds * 1e6 / num_rounds, .gbit_per_s = 1000};
}

class Paced : public RankTest {
 protected:
  std::unique_ptr<Communicator> paced_group(Link link) const {
    auto group = std::make_unique<PacedCommunicator>(comm_.split(0, 0), link);
    comm_.barrier();
    return group;
  }

  static constexpr int kAllReduceRounds = 2;
};

TEST_ON_RANKS(Paced, EveryOperationTakesTheTimeOfItsLink) {
  const auto paced = paced_group(kSlow);
  // Of the rank whose link decides. It may start before this rank has left the barrier.
  const auto expect_time = [&](const LinksUse& use, const std::function<WorkPtr()>& start) {
    const Timer timer;
    comm_.barrier();
    const WorkPtr work = start();
    EXPECT_LT(timer.seconds(), kGraceSeconds) << "starting does not wait";
    work->wait();
    const double needed = link_seconds(Links(kSlow), use);
    EXPECT_GE(timer.seconds(), needed);
    EXPECT_LT(timer.seconds(), needed + kGraceSeconds);
    EXPECT_TRUE(work->test());
  };
  const at::Tensor full = at::ones({2000 * size_});  // 8 kB, 16 ms, on each rank
  const at::Tensor shard = at::ones({2000});
  for (const Operation& operation : {Operation{CommOp::kAllReduce, full},
                                     {CommOp::kReduceScatter, full, shard},
                                     {CommOp::kAllGather, full, shard},
                                     {CommOp::kBroadcast, full, {}, /*root=*/size_ - 1}}) {
    expect_time(sent_by(operation, size_, /*rank=*/size_ - 1).links,
                [&] { return paced->start(operation); });
  }
  if (size_ == 1) return;  // no rank to send to
  const LinksUse sent = sent_by(CommOp::kSend, full.numel(), 4, size_, rank_).links;
  WorkPtr other;
  expect_time(sent, [&] {
    other = paced->recv(full, previous_, 0);
    return paced->send(at::ones_like(full), next_, 0);
  });
  other->wait();
  expect_time(sent, [&] {
    other = paced->send(at::ones_like(full), next_, 0);
    return paced->recv(full, previous_, 0);
  });
  other->wait();
}

// Two ranks on each machine. What goes to other machines waits for the slow link between them, and
// what stays does not.
TEST_ON_RANKS(Paced, MachinesHaveALinkBetweenThem) {
  if (size_ < 4) return;
  auto group = comm_.split(0, 0);
  place_on(machines_of(size_, 2), *group);
  PacedCommunicator paced(std::move(group), {kFast, link_that_takes(0.5, 1)});
  const auto machine = paced.split_by([](int rank) { return rank / 2; });
  const at::Tensor sum = values_of(rank_, 5000, at::kFloat), inside = at::ones({4});
  comm_.barrier();
  const Timer timer;
  const WorkPtr work = paced.all_reduce(sum);
  machine->all_reduce(inside)->wait();
  EXPECT_LT(timer.seconds(), 0.9) << "waited for the link between machines";
  work->wait();
  EXPECT_GE(timer.seconds(), 1.0) << "a scatter and a gather";
  EXPECT_LT(timer.seconds(), 1.0 + kGraceSeconds);
  EXPECT_TRUE(bits_equal(sum, fold_of_all(size_, 5000, at::kFloat)));
}

// Two operations on one group and one on a group split from it: each is done when the link has
// served it and those before it, in whatever order they are waited for.
TEST_ON_RANKS(Paced, OperationsQueueOnTheLinkOfTheirRank) {
  const auto paced = paced_group(kSlow);
  const auto part = paced->split(0, 0);
  const double needed =
      link_seconds(Links(kSlow), sent_by(CommOp::kAllReduce, 8000, 4, size_, rank_).links);
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
  EXPECT_LT(timer.seconds(), 0.1 + kGraceSeconds);
}

// A rank computes until test() reports that the operation is done; wait() then has nothing to do.
TEST_ON_RANKS(Paced, ComputationHidesTheLink) {
  const auto paced = paced_group(link_that_takes(0.3, kAllReduceRounds));
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
  const auto paced = paced_group(rank_ == 0 ? link_that_takes(1.0, kAllReduceRounds) : kFast);
  const at::Tensor late = values_of(rank_, 3000, at::kFloat);
  const Timer timer;
  const WorkPtr slow = paced->all_reduce(at::ones({size_}));
  if (rank_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const WorkPtr fast = comm_.all_reduce(late);
  if (rank_ == 0) {
    slow->wait();
    EXPECT_GE(timer.seconds(), 1.0);
    fast->wait();
  } else {
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

class PacedArrival : public Paced {
 protected:
  // The link of `slow_rank`, and of no other rank, needs kSlowSeconds for a round.
  std::unique_ptr<Communicator> group_with_slow(int slow_rank) const {
    return paced_group(rank_ == slow_rank ? link_that_takes(kSlowSeconds, 1) : kFast);
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
  const auto paced = group_with_slow(0);
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
  const auto paced = group_with_slow(0);
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
  const auto paced = group_with_slow(size_ - 1);
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
  EXPECT_GE(after_a_send, 2 * kSlowSeconds);
}

TEST_ON_RANKS(PacedArrival, WaitingForAMessageFreesTheCore) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0);
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
