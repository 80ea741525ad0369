// Step 2: every rank reads the samples that it trains on, and no others.
#pragma once

#include "common/train/trainer.hpp"
#include "step2_sharded_data/theory.hpp"

namespace ladder::step2 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step2
