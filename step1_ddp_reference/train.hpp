// Step 1: data parallelism with libtorch's own Reducer, the reference that later steps must equal.
#pragma once

#include "common/train/trainer.hpp"
#include "step1_ddp_reference/theory.hpp"

namespace ladder::step1 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step1
