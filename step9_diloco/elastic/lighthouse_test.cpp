// A lighthouse of this process, polled by hand, and heartbeats that the test writes.
#include "step9_diloco/elastic/lighthouse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/decision.hpp"
#include "step9_diloco/elastic/records.hpp"
#include "step9_diloco/elastic/store.hpp"

namespace ladder {
namespace {

constexpr double kStale = 0.5;

class LighthouseTest : public ::testing::Test {
 protected:
  LighthouseTest() : store_({"127.0.0.1", lighthouse_.port()}, 5) {
    store_.set(fingerprint_key(lighthouse_.lighthouse_epoch()), "toy");
  }

  // The worker's next heartbeat.
  void beat(const Heartbeat& heartbeat) {
    store_.set(beat_key(heartbeat.worker),
               to_text({.beat = heartbeat,
                        .rules = {.num_workers = 2, .stale_s = kStale, .join_timeout_s = 0.2},
                        .fingerprint = "toy",
                        .lighthouse_epoch = lighthouse_.lighthouse_epoch(),
                        .number = ++num_beats_}));
  }
  static Heartbeat asking(int worker, std::int64_t request, std::int64_t outer_steps,
                          std::uint64_t epoch = 1, const QuorumNumber& last_quorum = {}) {
    return {.worker = worker,
            .epoch = epoch,
            .phase = Phase::kAsking,
            .request = request,
            .last_quorum = last_quorum,
            .outer_steps = outer_steps,
            .address = concat("tcp://127.0.0.1:", worker + 1)};
  }
  static Heartbeat training(int worker, std::int64_t request, std::int64_t outer_steps,
                            std::int64_t progress) {
    Heartbeat heartbeat = asking(worker, request, outer_steps);
    heartbeat.phase = Phase::kTraining;
    heartbeat.progress = progress;
    return heartbeat;
  }
  std::optional<Quorum> quorum_of(int worker) {
    const std::optional<std::string> text = store_.get(assignment_key(worker));
    if (!text) return {};
    return parse_quorum(*text);
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

  Lighthouse lighthouse_{0, /*is_public=*/false, say_nothing};
  Store store_;
  std::int64_t num_beats_ = 0;
};

// After a pause, in which both workers lived, the one that is heard first does not go off alone.
TEST_F(LighthouseTest, AfterAPauseItWaitsForAll) {
  beat(asking(0, 1, 0));
  beat(training(1, 0, 0, 0));
  lighthouse_.poll();
  EXPECT_EQ(quorum_of(0), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // beyond kStale
  beat(asking(0, 1, 0));
  lighthouse_.poll();
  EXPECT_EQ(quorum_of(0), std::nullopt);
  for (int i = 0; i < 80; ++i) {  // worker 1 is lost indeed
    beat(asking(0, 1, 0));
    lighthouse_.poll();
    pause();
  }
  EXPECT_NE(quorum_of(0), std::nullopt);
}

// Both vanish. The first to come back, from an old checkpoint, does not go off alone.
TEST_F(LighthouseTest, AfterAllWereLostItWaitsForAll) {
  beat(training(0, 0, 7, 0));
  beat(training(1, 0, 7, 0));
  for (int i = 0; i < 80; ++i) {
    lighthouse_.poll();
    pause();
  }
  for (int i = 0; i < 3; ++i) {
    beat(asking(0, 1, 5, /*epoch=*/2));
    lighthouse_.poll();
    pause();
  }
  EXPECT_EQ(quorum_of(0), std::nullopt);
  beat(asking(1, 1, 6, /*epoch=*/2));
  lighthouse_.poll();
  ASSERT_NE(quorum_of(0), std::nullopt);
  EXPECT_EQ(quorum_of(0)->member(0).donor, 1);
}

// The log fails after the assignments are written. The next quorum aborts the round nevertheless.
TEST(Lighthouse, ARoundThatWasPublishedInPartIsAborted) {
  int num_quorums = 0;
  Lighthouse lighthouse(0, /*is_public=*/false, [&](const std::string& message) {
    if (message.starts_with("quorum")) check(++num_quorums > 1, "the disk is full");
  });
  Store store({"127.0.0.1", lighthouse.port()}, 5);
  store.set(fingerprint_key(lighthouse.lighthouse_epoch()), "toy");
  const auto ask = [&](std::int64_t request) {
    store.set(beat_key(0), to_text({.beat = {.phase = Phase::kAsking, .request = request},
                                    .rules = {.num_workers = 1},
                                    .fingerprint = "toy",
                                    .lighthouse_epoch = lighthouse.lighthouse_epoch(),
                                    .number = request}));
  };
  ask(1);
  EXPECT_THROW(lighthouse.poll(), CheckError);
  const Quorum first = parse_quorum(store.get(assignment_key(0)).value());
  ask(2);
  lighthouse.poll();
  EXPECT_GT(parse_quorum(store.get(assignment_key(0)).value()).id, first.id);
  EXPECT_EQ(poll(store, first, 0, {.is_ready = true}), Decision::kAbort);
}

// Worker 0 commits the round in the moment in which the next quorum is about to be formed without
// it, by workers that have given the round up.
TEST_F(LighthouseTest, ACommitOfThisMomentIsNotUndone) {
  for (int worker = 0; worker < 3; ++worker) beat(asking(worker, 1, 5));
  lighthouse_.poll();
  const std::optional<Quorum> first = quorum_of(0);
  ASSERT_TRUE(first.has_value());
  for (const Member& member : first->members) store_.set(vote_key(*first, member.worker), "yes");
  EXPECT_EQ(poll(store_, *first, 0, {.is_ready = true}), Decision::kCommit);
  for (int i = 0; i < 50; ++i) {
    beat(training(0, 1, 5, i + 1));  // it does not say so yet
    beat(asking(1, 1, 5, /*epoch=*/2));
    beat(asking(2, 1, 5, /*epoch=*/2));
    lighthouse_.poll();
    pause();
  }
  EXPECT_EQ(quorum_of(1)->id, first->id);
  for (int i = 0; i < 50; ++i) {
    beat(asking(0, 2, 6, /*epoch=*/1, first->number()));
    beat(asking(1, 1, 5, /*epoch=*/2));
    beat(asking(2, 1, 5, /*epoch=*/2));
    lighthouse_.poll();
    pause();
  }
  EXPECT_EQ(quorum_of(1)->outer_steps, 6);
  EXPECT_EQ(quorum_of(1)->member(2).donor, 0);
}

// Worker 0 commits the round alone and dies. Worker 1, which has healed in it, has missed the sum,
// says so, and trains for long. Nobody there knows of the outer step, so workers 2 and 3 go on from
// the state before it, which they have from checkpoints, without waiting for worker 1.
TEST_F(LighthouseTest, AMemberThatHasMissedTheSumIsNotTakenForOneThatHasIt) {
  beat(asking(0, 1, 5));
  beat(asking(1, 1, 4));
  lighthouse_.poll();
  const std::optional<Quorum> first = quorum_of(0);
  ASSERT_TRUE(first.has_value());
  ASSERT_EQ(first->member(1).donor, 0);
  store_.set(vote_key(*first, 0), "yes");
  EXPECT_EQ(poll(store_, *first, 0, {.is_ready = true}), Decision::kCommit);
  Heartbeat listener = training(1, 1, 5, 0);
  listener.last_quorum = first->number();
  const auto form_without = [&] {
    for (int i = 0; i < 100; ++i) {
      ++listener.progress;
      beat(listener);
      for (const int worker : {2, 3}) beat(asking(worker, 1, 5, 1, first->number()));
      lighthouse_.poll();
      pause();
    }
    return quorum_of(2).has_value();
  };
  EXPECT_FALSE(form_without());  // it may have the sum,
  listener.last_ended = 1;       // and has it not
  EXPECT_TRUE(form_without());
}

// Of a worker that comes back from another lighthouse, whose clock was ahead.
TEST_F(LighthouseTest, QuorumsAreNumberedInTheirOrderEvenIfTheClockGoesBack) {
  EXPECT_GT(Lighthouse(0, false, say_nothing).lighthouse_epoch(), lighthouse_.lighthouse_epoch());
  const QuorumNumber other = {lighthouse_.lighthouse_epoch() + 1'000'000'000, 97};
  for (int worker = 0; worker < 2; ++worker) beat(asking(worker, 1, 7));
  lighthouse_.poll();
  const QuorumNumber first = quorum_of(0).value().number();
  EXPECT_EQ(first.lighthouse_epoch, lighthouse_.lighthouse_epoch());
  beat(asking(0, 2, 7, 1, first));
  beat(asking(1, 1, 90, /*epoch=*/2, other));
  lighthouse_.poll();
  const Quorum second = quorum_of(0).value();
  EXPECT_GT(second.number(), other);
  EXPECT_EQ(second.outer_steps, 7);
  EXPECT_EQ(second.member(1).donor, 0);
}

}  // namespace
}  // namespace ladder
