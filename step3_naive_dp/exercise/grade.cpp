// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step3_naive_dp the
// learner's?
#include "common/testing/grade_main.hpp"
#include "step3_naive_dp/exercise/grader.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& comm) {
  return step3::grade({broadcast_parameters, all_reduce_gradients}, comm);
}

}  // namespace ladder
