// Step 7: ZeRO-3, which shards parameters, gradients and optimizer state.
#pragma once

#include "common/train/trainer.hpp"
#include "step7_zero3/theory.hpp"

namespace ladder::step7 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step7
