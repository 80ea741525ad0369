// A state on its way over a link that is slow, or damages what it carries.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/paced_link.hpp"
#include "step9_diloco/elastic/peer.hpp"

namespace ladder {
namespace {

constexpr double kMegabyte = 1e6;

double setting(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atof(text);
}

// Of worker 1, for a piece.
Message request_of(const Quorum& quorum, std::int64_t piece, const WorkerState& state) {
  return {.kind = MessageKind::kRequest,
          .lighthouse_epoch = quorum.lighthouse_epoch,
          .quorum = quorum.id,
          .sender = 1,
          .epoch = quorum.member(1).epoch,
          .offset = piece * kPieceBytes,
          .total = snapshot_bytes(state)};
}

TEST(Heal, AStopEndsIt) {
  Peer donor(0), healing(1);  // the donor gives nothing
  Quorum quorum = quorum_of_two(donor.messenger.address(), healing.messenger.address());
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  const Timer timer;
  int num_calls = 0;
  const auto goes_on = [&] { return ++num_calls < 3; };
  EXPECT_FALSE(heal(quorum, 1, state_of(at::zeros({3})), healing.messenger, healing.mailbox, 600,
                    goes_on, say_nothing));
  EXPECT_LT(timer.seconds(), 60);
}

// Nothing is sent twice, so it takes the link's own time, and the donor never has more than a
// window of pieces in its queue.
TEST(Heal, TakesAsLongAsTheLink) {
  const double bytes = kMegabyte * setting("LADDER_HEAL_MB", 6);
  const double bytes_per_s = kMegabyte * setting("LADDER_HEAL_MB_PER_S", 3);
  Peer donor(0), healing(1);
  const PacedLink link(healing.messenger.address(), bytes_per_s);
  const at::Tensor given = at::arange(static_cast<std::int64_t>(bytes / 4), at::kFloat);
  const at::Tensor taken = at::zeros_like(given);
  Quorum quorum = quorum_of_two(donor.messenger.address(), link.address());
  quorum.members[0].state_hash = shared_hash(state_of(given));
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  donor.server.serve(quorum, take_snapshot(state_of(given)));
  std::int64_t most_queued = 0;
  const auto look_at_queue = [&] {
    most_queued = std::max(most_queued, donor.messenger.num_bytes_sent() - link.num_bytes());
    return true;
  };
  const Timer timer;
  EXPECT_TRUE(heal(quorum, 1, state_of(taken), healing.messenger, healing.mailbox, 5, look_at_queue,
                   say_nothing));
  const double link_s = bytes / bytes_per_s, seconds = timer.seconds();
  EXPECT_TRUE(taken.equal(given));
  EXPECT_LT(seconds, 1.3 * link_s);
  EXPECT_LT(static_cast<double>(donor.messenger.num_bytes_sent()), 1.1 * bytes);
  EXPECT_LT(most_queued, 20 * kPieceBytes);
  std::cout << bytes / kMegabyte << " MB at " << bytes_per_s / kMegabyte << " MB/s: " << seconds
            << " s, " << seconds / link_s << " times the link's own time; at most "
            << static_cast<double>(most_queued) / kMegabyte << " MB in the donor's queue\n";
}

// A request costs a donor no memory: the link takes nothing, and whoever asks goes on asking.
TEST(Heal, AFloodOfRequestsFillsNoMemory) {
  Peer donor(0);
  Quorum quorum = quorum_of_two(donor.messenger.address(), "tcp://127.0.0.1:1");
  quorum.members[1].donor = 0;
  const WorkerState state = state_of(at::zeros({100 * kPieceBytes}));
  donor.server.serve(quorum, take_snapshot(state));
  for (std::int64_t i = 0; i < 1000; ++i) {
    donor.server.answer(request_of(quorum, i % 400, state), donor.messenger);
  }
  EXPECT_GT(donor.messenger.num_bytes_sent(), 16 * kPieceBytes);
  EXPECT_LT(donor.messenger.num_bytes_sent(), 40 * kPieceBytes);
}

// Whoever heals may ask before its donor has heard of the quorum.
TEST(Heal, AnEarlyRequestIsRepeated) {
  Peer donor(0), healing(1);
  Quorum quorum = quorum_of_two(donor.messenger.address(), healing.messenger.address());
  const at::Tensor given = at::ones({1000}), taken = at::zeros({1000});
  quorum.members[0].state_hash = shared_hash(state_of(given));
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  const Timer timer;
  const auto serve_later = [&] {
    const bool is_late = timer.seconds() > 0.3 && donor.server.quorums().empty();
    if (is_late) donor.server.serve(quorum, take_snapshot(state_of(given)));
    return true;
  };
  EXPECT_TRUE(heal(quorum, 1, state_of(taken), healing.messenger, healing.mailbox, 60, serve_later,
                   say_nothing));
  EXPECT_TRUE(taken.equal(given));
  EXPECT_LT(timer.seconds(), 10);
}

// The last window is on its way when nobody asks any more.
TEST(Heal, ADonorWaitsForItsLastPieces) {
  Peer donor(0);
  Quorum quorum = quorum_of_two(donor.messenger.address(), "tcp://127.0.0.1:1");
  quorum.members[1].donor = 0;
  const WorkerState state = state_of(at::zeros({1000}));
  donor.server.serve(quorum, take_snapshot(state));
  for (int piece = 0; piece < 5; ++piece) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    donor.server.answer(request_of(quorum, 0, state), donor.messenger);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(donor.server.is_serving(0.01));
  const Timer timer;
  while (donor.server.is_serving(0.01) && timer.seconds() < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(donor.server.is_serving(0.01));
}

// Whether a state with these counters and values is adopted, where the quorum says this of its
// donor.
bool is_adopted(std::vector<std::int64_t> counters, std::int64_t outer_steps,
                const at::Tensor& given, const at::Tensor& as_the_quorum_says) {
  Peer donor(0), healing(1);
  Quorum quorum = quorum_of_two(donor.messenger.address(), healing.messenger.address());
  quorum.members[0].outer_steps = outer_steps;
  quorum.members[0].state_hash = shared_hash(state_of(as_the_quorum_says));
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  const at::Tensor taken = at::zeros_like(given);
  std::vector<std::int64_t> taken_counters = {0, 0};
  WorkerState donors = state_of(given), own = state_of(taken);
  donors.counters = [&] { return counters; };
  own.counters = [&] { return taken_counters; };
  own.set_counters = [&](const std::vector<std::int64_t>& values) { taken_counters = values; };
  donor.server.serve(quorum, take_snapshot(donors));
  const bool is_healed = heal(
      quorum, 1, own, healing.messenger, healing.mailbox, 5, [] { return true; }, say_nothing);
  EXPECT_EQ(taken.equal(given), is_healed);
  EXPECT_EQ(taken_counters == counters, is_healed);
  return is_healed;
}

TEST(Heal, WhatContradictsTheQuorumIsNotAdopted) {
  const at::Tensor given = at::ones({100}), other = at::full({100}, 2, at::kFloat);
  EXPECT_TRUE(is_adopted({3, 12}, 3, given, given));
  EXPECT_FALSE(is_adopted({3, 12}, 3, given, other));
  EXPECT_FALSE(is_adopted({4, 12}, 3, given, given));
  EXPECT_FALSE(is_adopted({-1, 12}, -1, given, given));
  EXPECT_FALSE(is_adopted({3, -1}, 3, given, given));
  EXPECT_FALSE(is_adopted({3, INT64_MIN}, 3, given, given));
  EXPECT_FALSE(is_adopted({3, INT64_MAX}, 3, given, given));
}

}  // namespace
}  // namespace ladder
