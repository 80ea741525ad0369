// Step 4: gradients are reduced in buckets while backward is still running.
#pragma once

#include "common/train/trainer.hpp"
#include "step4_bucketed_ddp/theory.hpp"

namespace ladder::step4 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step4
