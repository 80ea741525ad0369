// On 1, 2, 3 and 4 ranks: the grader of the exercise accepts the reference, and it rejects answers
// that look right and are not, each for its own reason, on all ranks alike, wherever it shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/mpi_world.hpp"
#include "step1_ddp_reference/exercise/grader.hpp"
#include "step1_ddp_reference/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
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
  for (const step1::WrongAnswer& wrong : step1::wrong_answers()) {
    const std::vector<std::string> faults = step1::grade(wrong.attempt, comm);
    if (comm.size() >= wrong.min_ranks) {
      EXPECT_THAT(faults, Contains(HasSubstr(wrong.reason))) << wrong.name;
    }
    const auto num_faults = static_cast<double>(faults.size());
    EXPECT_EQ(all_reduce_sum(num_faults, comm), comm.size() * num_faults) << wrong.name;
  }
}

}  // namespace
}  // namespace ladder
