// Judges a loop of step 1: all that it has to show, the trainings show.
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step1_ddp_reference/train.hpp"

namespace ladder {

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step1::trainer(), .sends_in_place = false}, comm);
  judge.all_cases_are_right();
  return judge.faults();
}

}  // namespace ladder
