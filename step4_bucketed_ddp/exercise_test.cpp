// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason
// and on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step4_bucketed_ddp/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

TEST(Exercise, GraderAcceptsWhatTheWrongAnswersAreMadeFrom) {
  EXPECT_THAT(step4::grade(step4::make<step4::RightBucketer>(), mpi_world().comm()),
              ::testing::IsEmpty());
}

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : step4::wrong_answers(comm.size())) {
    expect_rejected(wrong, step4::grade(wrong.attempt, comm), comm);
  }
}

}  // namespace
}  // namespace ladder
