// Step 0: one device, one process, and the loop that all later steps keep.
#pragma once

#include "common/train/trainer.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"
#include "step0_single_gpu/theory.hpp"

namespace ladder::step0 {

// Trains as `options` say. Throws UsageError in a world of several ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step0
