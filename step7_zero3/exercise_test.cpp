// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason
// and on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step7_zero3/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

TEST(RightAnswer, GraderAcceptsWhatTheWrongAnswersAreMadeFrom) {
  EXPECT_THAT(step7::grade(step7::make<step7::RightModel>(), mpi_world().comm()),
              ::testing::IsEmpty());
}

// A test for each, so that each has its own time.
class WrongAnswers : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WrongAnswers, AreRejectedByTheGrader) {
  const WrongAnswer<step7::MakeModel> wrong = step7::wrong_answers()[GetParam()];
  expect_rejected(wrong, step7::grade(wrong.attempt, mpi_world().comm()), mpi_world().comm());
}

INSTANTIATE_TEST_SUITE_P(Exercise, WrongAnswers,
                         ::testing::Range(std::size_t{0}, step7::wrong_answers().size()));

}  // namespace
}  // namespace ladder
