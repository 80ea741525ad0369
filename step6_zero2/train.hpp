// Step 6: ZeRO-2, which shards gradients and optimizer state.
#pragma once

#include "common/train/trainer.hpp"
#include "step6_zero2/theory.hpp"

namespace ladder::step6 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step6
