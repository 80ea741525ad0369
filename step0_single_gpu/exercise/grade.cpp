// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step0_single_gpu the
// learner's?
#include "common/testing/grade_main.hpp"
#include "step0_single_gpu/exercise/grader.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& /*comm*/) {
  return step0::grade(accumulate_gradients);
}

}  // namespace ladder
