// On 1, 2 and 3 ranks: answers that the exercise's grader must reject, each for its own reason and
// on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step0_single_gpu/precision/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

TEST(RightAnswer, IsWhatTheWrongOnesAreMadeFrom) {
  EXPECT_THAT(loss_scaler::grade(loss_scaler::scaler_with<>(), loss_scaler::step_with<>(),
                                 mpi_world().comm()),
              IsEmpty());
}

TEST(RightAnswer, MayBeWrittenInOtherWords) {
  EXPECT_THAT(loss_scaler::grade(loss_scaler::scaler_with<loss_scaler::AnotherRightScaler>(),
                                 loss_scaler::step_with<loss_scaler::AnotherRightStep>(),
                                 mpi_world().comm()),
              IsEmpty());
}

TEST(RightAnswer, IsWrittenInTwoParts) {
  Communicator& comm = mpi_world().comm();
  const auto no_scaler = loss_scaler::scaler_with<loss_scaler::ScalerNotWritten>();
  const auto no_step = loss_scaler::step_with<loss_scaler::StepNotWritten>();
  EXPECT_THAT(
      loss_scaler::grade(no_scaler, no_step, comm),
      ElementsAre(HasSubstr("part 1, loss_scaler.cpp, is not complete yet: not implemented: "
                            "loss_scaler: LossScaler::accepts()"),
                  "part 2, scaled_step.cpp, will be graded once part 1 is right"));
  EXPECT_THAT(loss_scaler::grade(loss_scaler::scaler_with<>(), no_step, comm),
              ElementsAre(HasSubstr("part 2, scaled_step.cpp, is not complete yet: not "
                                    "implemented: loss_scaler: scaled_step()")));
}

TEST(Exercise, GraderRejectsWrongScalers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : loss_scaler::wrong_scalers())
    expect_rejected(wrong, loss_scaler::grade_scaler(wrong.attempt, comm), comm);
}

TEST(Exercise, GraderRejectsWrongSteps) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : loss_scaler::wrong_steps(comm.size()))
    expect_rejected(wrong, loss_scaler::grade_step(wrong.attempt, comm), comm);
}

}  // namespace
}  // namespace ladder
