// Step 9: DiLoCo. Workers take many steps of their own between two averages.
#pragma once

#include "common/train/trainer.hpp"
#include "step9_diloco/theory.hpp"

namespace ladder::step9 {

TrainReport train(const TrainOptions& options,
                  Communicator& comm);  // collective: every rank is a worker

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::step9
