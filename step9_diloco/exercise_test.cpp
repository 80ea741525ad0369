// On 1, 2, 3 and 4 ranks: answers that the exercise's grader must reject, each for its own reason
// and on all ranks, wherever the mistake shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/grade_main.hpp"
#include "common/testing/mpi_world.hpp"
#include "step9_diloco/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Exercise, GraderAcceptsTheSolution) {
  EXPECT_THAT(grade_linked(mpi_world().comm()), ::testing::IsEmpty());
}

// "part 1 is right" is told of what the wrong averagers are made from, and so on.
TEST(RightAnswer, EachPartIsGradedWithoutTheOther) {
  Communicator& comm = mpi_world().comm();
  const step9::MakeAverager averager = step9::averager_with<>();
  const step9::MakeDiloco diloco = step9::diloco_with<>();
  const step9::MakeAverager no_averager = step9::averager_with<step9::AveragerNotWritten>();
  const step9::MakeDiloco no_diloco = step9::diloco_with<step9::DilocoNotWritten>();
  const auto is_missing = [](const char* part, const char* what) {
    return HasSubstr(concat(part, ", is not complete yet: not implemented: step9_diloco: ", what));
  };
  const auto no_part_1 = is_missing("part 1, averager.cpp", "GroupAverager::start()");
  const auto no_part_2 = is_missing("part 2, diloco.cpp", "Diloco::start_average()");
  EXPECT_THAT(step9::grade(averager, diloco, comm), IsEmpty());
  EXPECT_THAT(step9::grade(no_averager, diloco, comm), ElementsAre(no_part_1, "part 2 is right"));
  EXPECT_THAT(step9::grade(averager, no_diloco, comm), ElementsAre(no_part_2, "part 1 is right"));
  EXPECT_THAT(step9::grade(no_averager, no_diloco, comm), ElementsAre(no_part_1, no_part_2));
}

TEST(RightAnswer, MayBeWrittenInOtherWords) {
  EXPECT_THAT(step9::grade(step9::averager_with<step9::AnotherRightAverager>(),
                           step9::diloco_with<step9::AnotherRightDiloco>(), mpi_world().comm()),
              IsEmpty());
}

TEST(Exercise, GraderRejectsWrongAveragers) {
  Communicator& comm = mpi_world().comm();
  for (const auto& wrong : step9::wrong_averagers(comm.size()))
    expect_rejected(wrong, step9::grade_averager(wrong.attempt, comm), comm);
}

// A test for each, so that each has its own time.
class WrongDilocos : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WrongDilocos, AreRejectedByTheGrader) {
  Communicator& comm = mpi_world().comm();
  const auto wrong = step9::wrong_dilocos(comm.size())[GetParam()];
  expect_rejected(wrong, step9::grade_diloco(wrong.attempt, comm), comm);
}

INSTANTIATE_TEST_SUITE_P(Exercise, WrongDilocos,
                         ::testing::Range(std::size_t{0}, step9::wrong_dilocos(1).size()));

}  // namespace
}  // namespace ladder
