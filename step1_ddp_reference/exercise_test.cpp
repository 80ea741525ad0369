// On 1, 2, 3 and 4 ranks: the grader of the exercise accepts the reference, and it rejects answers
// that look right and are not, each for its own reason, on all ranks alike, wherever it shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/mpi_world.hpp"
#include "step1_ddp_reference/exercise/grader.hpp"
#include "step1_ddp_reference/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

TEST(Exercise, ReferenceDdpIsRight) {
  EXPECT_THAT(step1::grade(step1::linked_ddp, mpi_world().comm()), IsEmpty());
}

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  if (!step1::grade(step1::linked_ddp, comm).empty()) {
    ADD_FAILURE() << "the wrong answers are made from the right one: see the test above first";
    return;
  }
  for (const auto& wrong : step1::wrong_answers()) {
    expect_rejected(wrong, step1::grade(wrong.attempt, comm), comm);
  }
}

}  // namespace
}  // namespace ladder
