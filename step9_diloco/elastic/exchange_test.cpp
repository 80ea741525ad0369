// What travels between two workers, values and states, over a link that is slow, or flips bits.
#include "step9_diloco/elastic/exchange.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <iostream>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "step9_diloco/elastic/testing/peer.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kMegabyte = 1e6, kFast = 1e12;

double setting(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atof(text);
}

TEST(Exchange, APieceThatIsDamagedFailsTheRound) {
  for (const int damaged : {-1, 0, 3}) {
    Peer one(0), other(1);
    const Relay relay(other.messenger.address(), kFast, {damaged});
    const at::Tensor a = at::ones({500'000}), b = at::full_like(a, 2);
    const auto add_up = [&](Peer& peer, const std::string& to_other, const at::Tensor& values) {
      const at::NoGradGuard no_grad;
      const Quorum quorum = quorum_of_two(one.messenger.address(), to_other);
      peer.mailbox.begin(quorum);
      return sum_over_contributors(values, quorum, peer.worker, peer.messenger, peer.mailbox, 0.7)
          .is_empty();
    };
    const Timer timer;
    auto first = std::async(std::launch::async, [&] { return add_up(one, relay.address(), a); });
    const bool is_there_too = add_up(other, other.messenger.address(), b);
    const bool is_there = first.get() && is_there_too;
    EXPECT_EQ(is_there, damaged == -1) << damaged;
    EXPECT_LT(timer.seconds(), 5);
    EXPECT_EQ(other.messenger.num_refused(), damaged == -1 ? 0 : 1);
    if (!is_there) continue;
    EXPECT_TRUE(a.equal(at::full_like(a, 3)));
    EXPECT_TRUE(b.equal(a));
  }
}

// A piece that is lost ends it as well. Nothing is adopted, and the worker may turn to another
// donor.
TEST(Heal, ADamagedPieceEndsIt) {
  Healing healing(at::arange(500'000, at::kFloat));
  const Relay relay(healing.receiver.messenger.address(), kFast, {2});
  healing.quorum.members[1].address = relay.address();
  healing.give();
  EXPECT_FALSE(healing.heal(0.5));
  EXPECT_EQ(healing.receiver.messenger.num_refused(), 1);
}

TEST(Heal, AStopEndsIt) {
  Healing healing(at::ones({3}));  // the donor gives nothing
  const Timer timer;
  int num_calls = 0;
  EXPECT_FALSE(healing.heal(600, [&] { return ++num_calls < 3; }));
  EXPECT_LT(timer.seconds(), 60);
}

// However long that takes, if only something arrives now and then. The donor knows that it is
// needed meanwhile, and trains on. Nothing is sent twice, so it takes the link's own time.
TEST(Heal, TakesAsLongAsTheLink) {
  const double bytes = kMegabyte * setting("LADDER_HEAL_MB", 6);
  const double bytes_per_s = kMegabyte * setting("LADDER_HEAL_MB_PER_S", 3);
  Healing healing(at::arange(static_cast<std::int64_t>(bytes / 4), at::kFloat));
  const Relay link(healing.receiver.messenger.address(), bytes_per_s);
  healing.quorum.members[1].address = link.address();
  const Timer timer;
  healing.give();
  const double given_s = timer.seconds();
  EXPECT_TRUE(healing.donor.is_giving(/*seconds=*/1));
  EXPECT_TRUE(healing.heal(1));
  const double link_s = bytes / bytes_per_s, seconds = timer.seconds();
  EXPECT_FALSE(healing.donor.is_giving(1));
  EXPECT_LT(given_s, 0.2 * link_s);
  EXPECT_LT(seconds, 1.3 * link_s);
  EXPECT_LT(static_cast<double>(link.num_bytes()), 1.1 * bytes);
  std::cout << bytes / kMegabyte << " MB at " << bytes_per_s / kMegabyte << " MB/s: " << seconds
            << " s, " << seconds / link_s << " times the link's own time\n";
}

// Worker 0 may hear of the quorum first.
TEST(Heal, AStateMayComeEarly) {
  Healing healing(at::ones({1000}));
  Quorum next = healing.quorum;
  ++next.id;
  healing.donor.give(next, take_snapshot(healing.given_state()));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  healing.quorum = next;
  healing.receiver.mailbox.begin(next);
  EXPECT_TRUE(healing.heal(10));
}

// One that all its receivers have given up, or of which nothing leaves any more.
TEST(Donor, ForgetsWhatNobodyNeeds) {
  Healing healing(at::ones({1000}));
  Quorum quorum = healing.quorum;
  const auto give = [&](int receiver, std::int64_t id) {
    quorum.id = id;
    quorum.members[1].worker = receiver;
    quorum.members[1].address = "tcp://127.0.0.1:1";  // nobody is there
    healing.donor.give(quorum, take_snapshot(healing.given_state()));
  };
  give(1, 1);
  give(2, 2);
  EXPECT_THAT(healing.donor.quorums(), ElementsAre(QuorumNumber{1, 1}, QuorumNumber{1, 2}));
  healing.donor.forget(quorum, 100);  // worker 2 asks again: it needs the old one no more
  EXPECT_THAT(healing.donor.quorums(), ElementsAre(QuorumNumber{1, 1}));
  EXPECT_FALSE(healing.donor.is_giving(0));
  healing.donor.forget({}, 0);
  EXPECT_THAT(healing.donor.quorums(), IsEmpty());
}

TEST(Heal, WhatContradictsTheQuorumIsNotAdopted) {
  const at::Tensor given = at::ones({100}), other = at::full({100}, 2, at::kFloat);
  const auto is_adopted = [&](const std::vector<std::int64_t>& counters, std::int64_t outer_steps,
                              const at::Tensor& as_the_quorum_says) {
    Healing healing(given);
    healing.given_counters = counters;
    healing.quorum.members[0].outer_steps = outer_steps;
    healing.quorum.members[0].state_hash =
        shared_hash({.shared = {{"shared", as_the_quorum_says}}});
    healing.give();
    return healing.heal(5);
  };
  EXPECT_TRUE(is_adopted({3, 12}, 3, given));
  EXPECT_FALSE(is_adopted({3, 12}, 3, other));
  EXPECT_FALSE(is_adopted({4, 12}, 3, given));
  EXPECT_FALSE(is_adopted({-1, 12}, -1, given));
  EXPECT_FALSE(is_adopted({3, -1}, 3, given));
  EXPECT_FALSE(is_adopted({3, INT64_MIN}, 3, given));
  EXPECT_FALSE(is_adopted({3, INT64_MAX}, 3, given));
  EXPECT_EQ(fault_of("short", {}, Healing(given).given_state()), "it has 5 bytes, not 416");
}

}  // namespace
}  // namespace ladder
