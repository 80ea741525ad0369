// The ReferenceDdp that this build links, as the grader wants it: the reference, or with
// -DLADDER_EXERCISE=step1_ddp_reference the learner's.
#pragma once

#include <memory>
#include <utility>

#include "step1_ddp_reference/exercise/grader.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"

namespace ladder::step1 {

inline Ddp linked_ddp(FlatModel& model, Communicator& comm) {
  const auto ddp = std::make_shared<ReferenceDdp>(model, comm);
  return {[ddp] { ddp->broadcast_parameters(); },
          [ddp](LossSum loss_sum) { return ddp->wrap(std::move(loss_sum)); },
          [ddp](std::int64_t num_microbatches) { ddp->arm(num_microbatches); },
          [ddp] { ddp->wait(); }};
}

}  // namespace ladder::step1
