// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step2_sharded_data the
// learner's?
#include "common/testing/grade_main.hpp"
#include "step2_sharded_data/exercise/grader.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& /*comm*/) {
  return step2::grade(samples_of_rank);
}

}  // namespace ladder
