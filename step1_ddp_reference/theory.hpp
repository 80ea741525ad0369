// What theory says of step 1.
#pragma once

#include "common/train/theory.hpp"

namespace ladder::step1 {

// A replica plus the Reducer's buckets: 4 more bytes per parameter, without padding.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per bucket of the Reducer, plus one of two doubles.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, the token ids of all ranks, and the Reducer's buckets of other ranks.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step1_ddp_reference",
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .tries = never,  // it is there to be equalled
  };
}

}  // namespace ladder::step1
