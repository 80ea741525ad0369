// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason
// and on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step8_pipeline_ga/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

// "part 1 is right" is told of what the wrong plans are made from, and so on.
TEST(RightAnswer, EachPartIsGradedWithoutTheOther) {
  Communicator& comm = mpi_world().comm();
  const step8::MakePlan plan = step8::plan_with<>();
  const step8::MakeRunner runner = step8::run_with<step8::RightRunner>();
  const step8::MakePlan no_plan = [](const auto&...) -> PipelinePlan {
    not_implemented("step8_pipeline_ga: head_start()");
  };
  const step8::MakeRunner no_runner = step8::run_with<step8::NotWritten>();
  const auto is_missing = [](const char* part, const char* what) {
    return HasSubstr(
        concat(part, ", is not complete yet: not implemented: step8_pipeline_ga: ", what));
  };
  const auto no_part_1 = is_missing("part 1, pipeline_schedule.cpp", "head_start()");
  const auto no_part_2 = is_missing("part 2, pipeline_runner.cpp", "backward()");
  EXPECT_THAT(step8::grade(plan, runner, comm), ElementsAre());
  EXPECT_THAT(step8::grade(no_plan, runner, comm), ElementsAre(no_part_1, "part 2 is right"));
  EXPECT_THAT(step8::grade(plan, no_runner, comm), ElementsAre(no_part_2, "part 1 is right"));
  EXPECT_THAT(step8::grade(no_plan, no_runner, comm), ElementsAre(no_part_1, no_part_2));
}

// A test for each, so that each has its own time.
class WrongPlans : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WrongPlans, AreRejectedByTheGrader) {
  const auto wrong = step8::wrong_plans()[GetParam()];
  expect_rejected(wrong, step8::grade_plan(wrong.attempt, mpi_world().comm()), mpi_world().comm());
}

INSTANTIATE_TEST_SUITE_P(Exercise, WrongPlans,
                         ::testing::Range(std::size_t{0}, step8::wrong_plans().size()));

class WrongRunners : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WrongRunners, AreRejectedByTheGrader) {
  const auto wrong = step8::wrong_runners()[GetParam()];
  expect_rejected(wrong, step8::grade_runner(wrong.attempt, mpi_world().comm()),
                  mpi_world().comm());
}

INSTANTIATE_TEST_SUITE_P(Exercise, WrongRunners,
                         ::testing::Range(std::size_t{0}, step8::wrong_runners().size()));

}  // namespace
}  // namespace ladder
