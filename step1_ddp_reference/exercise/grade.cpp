// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step1_ddp_reference the learner's?
#include "common/testing/grade_main.hpp"
#include "step1_ddp_reference/exercise/linked_ddp.hpp"

namespace ladder {
namespace {

std::vector<std::string> grade_linked(Communicator& comm) {
  return step1::grade(step1::linked_ddp, comm);
}

}  // namespace
}  // namespace ladder

int main() {
  return ladder::grade_main(ladder::grade_linked);
}
