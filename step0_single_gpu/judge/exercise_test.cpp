// Of every exercise that is judged: the solution passes, on 1, 2, 3 and 4 ranks, as do answers that
// are right in another way, and each planted wrong answer is rejected, for its own reason and with
// the same words on all ranks, on as many ranks as it takes to show the mistake. Where an exercise
// has levels, each of them is the first to reject some answer. Where it has targets, the solution
// reaches them exactly, and an answer that is right, but worse, misses one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "common/core/check.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/planted_answer.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/time_limit.hpp"

namespace ladder {
namespace {

TEST(Exercise, TheSolutionPasses) {
  EXPECT_THAT(judge_linked(test_world().comm()), ::testing::IsEmpty());
}

std::vector<Target> targets() {
  return measure_linked != nullptr ? measure_linked(test_world().comm()) : std::vector<Target>();
}

TEST(Exercise, TheSolutionReachesItsTargets) {
  for (const Target& target : targets()) {
    EXPECT_EQ(target.found, target.solution) << target.what;
    EXPECT_LT(target.solution, target.naive) << target.what;
  }
}

// Reasons of answers that must pass. The second misses a target.
constexpr const char* kRight = "right";
constexpr const char* kRightButWorse = "right, but worse";

bool misses(const Target& target) {
  return target.found > target.solution;
}

// The levels of an exercise that were the first to reject an answer.
class Levels {
 public:
  void note(const std::vector<std::string>& faults) {
    int level = 0, of = 0;
    if (!faults.empty() && std::sscanf(faults[0].c_str(), "level %d of %d,", &level, &of) == 2) {
      have_rejected_.insert(level);
      num_levels_ = of;
    }
  }
  // On the number of ranks that most answers need, every level has an answer to reject.
  void expect_all(int num_ranks) const {
    const auto num_answers = [](int ranks) {
      return std::count_if(
          planted_answers().begin(), planted_answers().end(),
          [ranks](const PlantedAnswer& planted) { return planted.num_ranks == ranks; });
    };
    for (int other = 1; other <= 4; ++other)
      if (num_answers(other) > num_answers(num_ranks)) return;
    for (int level = 1; level <= num_levels_; ++level)
      EXPECT_TRUE(have_rejected_.contains(level)) << "level " << level << " rejects no answer";
  }

 private:
  std::set<int> have_rejected_;
  int num_levels_ = 0;
};

TEST(Exercise, PlantedAnswersAreRejected) {
  Communicator& comm = test_world().comm();
  EXPECT_GE(planted_answers().size(), 5u);
  int number = 0;
  Levels levels;
  for (const PlantedAnswer& planted : planted_answers()) {
    ++number;
    if (planted.num_ranks != comm.size()) continue;
    // Each answer has a limit, instead of one for all together.
    start_time_limit(60, concat("rank ", comm.rank(), ": the answer '", planted.name, "'"));
    play_answer(number);
    const std::vector<std::string> faults = judge_linked(comm);
    const std::vector<Target> reached = faults.empty() ? targets() : std::vector<Target>();
    play_answer(0);
    levels.note(faults);
    if (comm.rank() == 0) {  // what a learner would read
      std::printf("%s\n", planted.name.c_str());
      for (const std::string& fault : faults) std::printf("  - %s\n", fault.c_str());
    }
    if (planted.reason == kRight || planted.reason == kRightButWorse) {
      EXPECT_THAT(faults, ::testing::IsEmpty()) << planted.name;
      EXPECT_EQ(std::any_of(reached.begin(), reached.end(), misses),
                planted.reason == kRightButWorse)
          << planted.name;
      continue;
    }
    EXPECT_THAT(faults, ::testing::Contains(::testing::HasSubstr(planted.reason))) << planted.name;
    const auto num_faults = static_cast<double>(faults.size());
    EXPECT_EQ(all_reduce_sum(num_faults, comm), comm.size() * num_faults) << planted.name;
  }
  levels.expect_all(comm.size());
}

}  // namespace
}  // namespace ladder
