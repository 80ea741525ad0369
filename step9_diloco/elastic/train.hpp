// Workers that may die: step 9's rounds with whoever is there.
#pragma once

#include "common/train/trainer.hpp"
#include "step9_diloco/elastic/theory.hpp"

namespace ladder::elastic {

// Of one worker, which is a world of its own. Throws UsageError for several ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::elastic
