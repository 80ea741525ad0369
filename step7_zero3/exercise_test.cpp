// On 1, 2, 3 and 4 ranks: what the exercise's grader must reject, each for its own reason, on all
// ranks alike, wherever it shows. That it accepts the reference: exercise/grade.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/mpi_world.hpp"
#include "step7_zero3/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

TEST(Exercise, GraderAcceptsWhatTheWrongAnswersAreMadeFrom) {
  EXPECT_THAT(step7::grade(step7::make<step7::RightGpt>(), mpi_world().comm()),
              ::testing::IsEmpty());
}

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : step7::wrong_answers()) {
    expect_rejected(wrong, step7::grade(wrong.attempt, comm), comm);
  }
}

}  // namespace
}  // namespace ladder
