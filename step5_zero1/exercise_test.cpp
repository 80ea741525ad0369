// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason
// and on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step5_zero1/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

TEST(Exercise, GraderAcceptsWhatTheWrongAnswersAreMadeFrom) {
  EXPECT_THAT(step5::grade(step5::right_attempt(), mpi_world().comm()), IsEmpty());
}

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : step5::wrong_answers(comm.size())) {
    expect_rejected(wrong, step5::grade(wrong.attempt, comm), comm);
  }
}

}  // namespace
}  // namespace ladder
