// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step1_ddp_reference the
// learner's?
#include "common/testing/grade_main.hpp"
#include "step1_ddp_reference/exercise/linked_ddp.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& comm) {
  return step1::grade(step1::linked_ddp, comm);
}

}  // namespace ladder
