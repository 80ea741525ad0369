#include "step9_diloco/elastic/quorum.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ladder {
namespace {

using ::testing::ElementsAre;

WorkerStatus asking(int worker, std::int64_t outer_steps = 0, const std::string& hash = "a") {
  return {.beat = {.worker = worker,
                   .phase = Phase::kAsking,
                   .request = 1,
                   .outer_steps = outer_steps,
                   .state_hash = hash}};
}

WorkerStatus training(int worker) {
  return {.beat = {.worker = worker, .phase = Phase::kTraining}};
}

std::vector<int> workers_of(const std::vector<Member>& members) {
  std::vector<int> workers;
  for (const Member& member : members) workers.push_back(member.worker);
  return workers;
}

TEST(Quorum, AllThatAskInTheOrderOfTheWorkers) {
  const auto quorum = decide_quorum({asking(2), asking(0), asking(1)}, {});
  ASSERT_TRUE(quorum.has_value());
  EXPECT_THAT(workers_of(quorum->members), ElementsAre(0, 1, 2));
  EXPECT_THAT(workers_of(quorum->contributors()), ElementsAre(0, 1, 2));
}

TEST(Quorum, OneThatIsAheadIsWaitedForUntilItIsHungOrLost) {
  std::vector<WorkerStatus> seen = {asking(0, 7), asking(1, 7), training(2)};
  seen[0].asking_s = 1000;
  seen[2].beat.outer_steps = 8;
  for (const Phase phase : {Phase::kTraining, Phase::kHealing}) {
    seen[2].beat.phase = phase;
    EXPECT_FALSE(decide_quorum(seen, {.join_timeout_s = 3}).has_value());
    std::vector<WorkerStatus> without = seen;
    without[2].progress_age_s = 3.1;
    EXPECT_TRUE(decide_quorum(without, {.join_timeout_s = 3}).has_value());
    without = seen;
    without[2].beat_age_s = 1.1;
    EXPECT_TRUE(decide_quorum(without, {.join_timeout_s = 3}).has_value());
  }
  seen[2].beat.outer_steps = 7;
  EXPECT_TRUE(decide_quorum(seen, {.join_timeout_s = 3}).has_value());
}

// Workers 0 and 1 come back with outer steps that were undone while they were away.
TEST(Quorum, TheStateOfTheLaterQuorumIsNewerHoweverManyOuterStepsItHas) {
  std::vector<WorkerStatus> seen = {asking(0, 7, "old"), asking(1, 7, "old"), asking(2, 3, "new")};
  seen[0].beat.last_quorum = seen[1].beat.last_quorum = {8, 97};
  seen[2].beat.last_quorum = {9, 5};
  const auto quorum = decide_quorum(seen, {});
  EXPECT_EQ(quorum->member(2).donor, std::nullopt);
  EXPECT_EQ(quorum->member(0).donor, 2);
  EXPECT_EQ(quorum->member(1).donor, 2);
  seen[0].asking_s = 1000;
  seen[2].beat.phase = Phase::kTraining;
  EXPECT_FALSE(decide_quorum(seen, {}).has_value());
}

// One knows already that the round is committed.
TEST(Quorum, OfOneQuorumTheStateWithMoreOuterStepsIsNewer) {
  std::vector<WorkerStatus> seen = {asking(0, 7, "a"), asking(1, 8, "b")};
  seen[0].beat.last_quorum = seen[1].beat.last_quorum = {8, 97};
  EXPECT_EQ(decide_quorum(seen, {})->member(0).donor, 1);
}

TEST(QuorumCounter, GoesOnAfterAllThatItHearsOfAndItsOwnAreTheNewest) {
  QuorumCounter counter(5000);
  counter.hear({4000, 97});
  const QuorumNumber first = counter.next();
  EXPECT_EQ(first, (QuorumNumber{5000, 1}));
  counter.hear(first);
  EXPECT_EQ(counter.next(), (QuorumNumber{5000, 2}));
  const QuorumNumber foreign = {9000, 97};  // of an earlier lighthouse, with a clock that was ahead
  counter.hear(foreign);
  const QuorumNumber third = counter.next();
  EXPECT_GT(third, foreign);
  EXPECT_LT(counter.in_order(foreign), counter.in_order(first));
  EXPECT_LT(counter.in_order(first), counter.in_order(third));
  EXPECT_LT(counter.in_order({4000, 97}), counter.in_order(foreign));
}

TEST(Quorum, ATieOfHashesGoesToTheLowestWorker) {
  const auto quorum = decide_quorum({asking(1, 3, "b"), asking(0, 3, "a")}, {});
  EXPECT_EQ(quorum->member(0).donor, std::nullopt);
  EXPECT_EQ(quorum->member(1).donor, 0);
}

TEST(Quorum, TheFinishedHelpButDoNotContribute) {
  std::vector<WorkerStatus> seen = {asking(0, 2), asking(1, 1)};
  seen[0].beat.has_finished = true;
  const auto quorum = decide_quorum(seen, {});
  EXPECT_EQ(quorum->member(1).donor, 0);
  EXPECT_TRUE(quorum->contributors().empty());
}

TEST(Quorum, ANewLighthouseWaitsForThoseThatItDoesNotKnowYet) {
  const QuorumRules rules = {.num_workers = 3, .stale_s = 1};
  EXPECT_FALSE(decide_quorum({asking(0), asking(1)}, rules, 0.9).has_value());
  EXPECT_TRUE(decide_quorum({asking(0), asking(1)}, rules, 1.0).has_value());
  EXPECT_TRUE(decide_quorum({asking(0), asking(1), asking(2)}, rules, 0.0).has_value());
  std::vector<WorkerStatus> seen = {asking(0), asking(1), asking(2)};
  seen[2].beat_age_s = 2;  // it may be frozen along with the lighthouse
  EXPECT_FALSE(decide_quorum(seen, rules, 0.9).has_value());
}

TEST(Quorum, DonorsTakeTurns) {
  std::vector<WorkerStatus> seen = {asking(0, 2), asking(1, 2), asking(2, 1), asking(3, 1)};
  const auto first = decide_quorum(seen, {});
  EXPECT_EQ(first->outer_steps, 2);
  EXPECT_NE(first->member(2).donor, first->member(3).donor);
  ++seen[2].beat.request;  // once more: its donor may have failed
  EXPECT_NE(decide_quorum(seen, {})->member(2).donor, first->member(2).donor);
}

// Every combination of four workers, each in one of these states, against the rules in words.
TEST(Quorum, EveryCombinationOfFourWorkers) {
  enum State { kAbsent, kLost, kLostAsking, kHung, kTrains, kHeals, kAsks, kNumStates };
  const QuorumRules base = {.stale_s = 1, .join_timeout_s = 5};
  int num_formed = 0;
  for (int code = 0; code < kNumStates * kNumStates * kNumStates * kNumStates; ++code) {
    for (const int min_workers : {1, 2, 3}) {
      for (const double waited_s : {0.0, 4.9, 5.0}) {
        std::vector<WorkerStatus> seen;
        std::map<int, int> count;
        for (int worker = 0, rest = code; worker < 4; ++worker, rest /= kNumStates) {
          const int state = rest % kNumStates;
          ++count[state];
          if (state == kAbsent) continue;
          WorkerStatus one =
              state == kAsks || state == kLostAsking ? asking(worker) : training(worker);
          if (state == kLost || state == kLostAsking) one.beat_age_s = 1.1;
          if (state == kHung) one.progress_age_s = 5.1;
          if (state == kHeals) one.beat.phase = Phase::kHealing;
          if (one.beat.phase == Phase::kAsking) one.asking_s = waited_s;
          seen.push_back(one);
        }
        QuorumRules rules = base;
        rules.min_workers = min_workers;
        const bool is_wanted =
            count[kAsks] >= min_workers &&
            (count[kTrains] + count[kHeals] == 0 ||
             (waited_s >= 5 && 2 * count[kAsks] > count[kAsks] + count[kTrains]));
        const auto quorum = decide_quorum(seen, rules);
        ASSERT_EQ(quorum.has_value(), is_wanted) << code << " " << min_workers << " " << waited_s;
        if (!quorum) continue;
        ++num_formed;
        ASSERT_EQ(quorum->members.size(), static_cast<std::size_t>(count[kAsks]));
        for (const Member& member : quorum->members) {
          ASSERT_TRUE(std::ranges::any_of(seen, [&](const WorkerStatus& one) {
            return one.beat.worker == member.worker && one.beat.phase == Phase::kAsking &&
                   one.beat_age_s <= 1;
          }));
        }
      }
    }
  }
  EXPECT_GT(num_formed, 1000);
}

// Every state of up to four members: two outer steps and two hashes each.
TEST(Quorum, EveryCombinationOfStatesHealsFromTheMajorityOfTheNewest) {
  for (int num = 1; num <= 4; ++num) {
    for (int code = 0; code < 1 << (2 * num); ++code) {
      std::vector<WorkerStatus> seen;
      for (int worker = 0; worker < num; ++worker) {
        const int bits = code >> (2 * worker) & 3;
        seen.push_back(asking(worker, bits & 1, bits & 2 ? "b" : "a"));
      }
      const auto quorum = decide_quorum(seen, {});
      ASSERT_TRUE(quorum.has_value());
      std::int64_t newest = 0;
      for (const WorkerStatus& one : seen) newest = std::max(newest, one.beat.outer_steps);
      std::map<std::string, int> votes;
      for (const WorkerStatus& one : seen)
        votes[one.beat.state_hash] += one.beat.outer_steps == newest;
      const std::vector<Member> healthy = quorum->contributors();  // nobody has finished
      ASSERT_FALSE(healthy.empty()) << code;
      ASSERT_EQ(quorum->outer_steps, newest);
      const std::string hash = healthy.front().state_hash;
      ASSERT_EQ(votes[hash], std::max(votes["a"], votes["b"])) << code;
      for (const Member& member : quorum->members) {
        const bool is_healthy = member.outer_steps == newest && member.state_hash == hash;
        ASSERT_EQ(member.donor.has_value(), !is_healthy) << code;
        if (member.donor.has_value()) {
          ASSERT_FALSE(quorum->member(*member.donor).donor.has_value());
        }
      }
    }
  }
}

}  // namespace
}  // namespace ladder
