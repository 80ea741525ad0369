// On 1, 2, 3 and 4 ranks: what the exercise's grader must reject, each for its own reason, on all
// ranks alike, wherever it shows. That it accepts the linked sharder: gradient_sharder_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/mpi_world.hpp"
#include "step6_zero2/exercise/wrong_answers.hpp"

namespace ladder {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  for (const step6::WrongAnswer& wrong : step6::wrong_answers(comm.size())) {
    const std::vector<std::string> faults = step6::grade(step6::make_wrong(wrong.mistake), comm);
    if (comm.size() >= wrong.min_ranks) {
      EXPECT_THAT(faults, Contains(HasSubstr(wrong.reason))) << wrong.name;
    }
    const auto num_faults = static_cast<double>(faults.size());
    EXPECT_EQ(all_reduce_sum(num_faults, comm), comm.size() * num_faults) << wrong.name;
  }
}

}  // namespace
}  // namespace ladder
