// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason and
// on all ranks, wherever the mistake shows. exercise/grade.cpp tests that it accepts the reference.
#include <gtest/gtest.h>

#include "common/testing/mpi_world.hpp"
#include "step1_ddp_reference/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : step1::wrong_answers()) {
    expect_rejected(wrong, step1::grade(wrong.attempt, comm), comm);
  }
}

}  // namespace
}  // namespace ladder
