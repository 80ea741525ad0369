// The chapter of step 3 about ranks that wait for each other: seven broken trainers.
#pragma once

#include "common/train/trainer.hpp"
#include "step3_naive_dp/why_does_it_hang/theory.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder::hang {

static_assert(kTrainers.size() == kNumBrokenTrainers);

// With the trainer that --trainer names. Collective.
TrainReport train(const TrainOptions& options, Communicator& comm);

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::hang
