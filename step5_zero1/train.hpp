// Step 5: ZeRO-1, which shards the optimizer state.
#pragma once

#include "common/train/trainer.hpp"
#include "step5_zero1/theory.hpp"

namespace ladder::step5 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step5
