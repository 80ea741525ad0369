// Step 3: our own data parallelism, the naive way.
#pragma once

#include "common/train/trainer.hpp"
#include "step3_naive_dp/theory.hpp"

namespace ladder::step3 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step3
