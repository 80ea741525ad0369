#include "step9_diloco/elastic/quorum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace ladder {
namespace {

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

TEST(Quorum, ATieOfHashesGoesToTheLowestWorker) {
  const auto quorum = decide_quorum({asking(1, 3, "b"), asking(0, 3, "a")}, {});
  EXPECT_EQ(quorum->member(0).donor, std::nullopt);
  EXPECT_EQ(quorum->member(1).donor, 0);
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
        for (int worker = 3, rest = code; worker >= 0; --worker, rest /= kNumStates) {
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
        ASSERT_TRUE(std::ranges::is_sorted(quorum->members, {}, &Member::worker));
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

// What keeps a quorum from being formed is said, and does not change while nothing else does.
TEST(Quorum, SaysWhyThereIsNone) {
  WorkerStatus ahead = training(2), healing = training(2), lost = training(2), hung = training(2);
  ahead.beat.outer_steps = 1;
  healing.beat.phase = Phase::kHealing;
  lost.beat_age_s = hung.progress_age_s = 9;
  const auto of_run = [](WorkerStatus status, std::uint64_t run) {
    status.beat.run = run;
    return status;
  };
  struct Case {
    std::vector<WorkerStatus> workers;
    QuorumRules rules;
    double watching_s;
    const char* why;
  };
  for (const auto& [workers, rules, watching_s, why] : std::vector<Case>{
           {{lost}, {}, 9, "nobody is there (not heard: 2)"},
           {{training(1), ahead, hung}, {}, 9, "nobody asks for one (training: 1 2; hung: 2)"},
           {{asking(0)},
            {.num_workers = 3},
            0.5,
            "watches until all 3 workers have had time to report (asking: 0)"},
           {{asking(0), lost},
            {.min_workers = 2},
            9,
            "fewer than --min-workers 2 ask for one (asking: 0; not heard: 2)"},
           {{asking(0), of_run(lost, 255)},
            {.num_workers = 2, .run = 255},
            9,
            "waits for a worker that has a state of run 000000000000ff: those that ask have none "
            "(asking: 0; not heard: 2)"},
           {{asking(0), asking(1), ahead},
            {},
            9,
            "waits for worker 2, whose state is newer (asking: 0 1; training: 2)"},
           {{asking(1), training(2)},
            {},
            9,
            "half or fewer of those that train or ask have asked (asking: 1; training: 2)"},
           {{asking(1), healing},
            {.join_timeout_s = 7},
            9,
            "waits up to 7 s for those that train or heal (asking: 1; healing: 2)"},
           {{of_run(asking(0), 255), asking(1)}, {.run = 255}, 9, ""}}) {
    EXPECT_EQ(why_no_quorum(workers, rules, watching_s), why);
    EXPECT_EQ(decide_quorum(workers, rules, watching_s).has_value(), std::string(why).empty());
  }
}

}  // namespace
}  // namespace ladder
