// What all ranks tell each other at the end of an optimizer step.
#pragma once

#include "common/comm/communicator.hpp"

namespace ladder {

struct StepSums {
  double loss = 0;                 // a rank's part of the step's loss; their sum is the loss
  bool is_stop_requested = false;  // this rank has received a signal; one is enough to stop all
};

// Sums over all ranks in one all-reduce of two doubles, folded in rank order. Collective, blocking.
StepSums all_reduce_sum(const StepSums& own, Communicator& comm,
                        CallSite where = CallSite::current());

}  // namespace ladder
