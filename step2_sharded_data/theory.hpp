// What theory says of step 2.
#pragma once

#include "common/train/theory.hpp"

namespace ladder::step2 {

// The same as step 1: the Reducer's buckets are still there.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// What step 1 sends, plus one all-reduce of a double: each rank now knows only its own target
// count.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, its token ids, and the Reducer's buckets of other ranks.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step2_sharded_data",
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .tries = never,  // it is there to be equalled
  };
}

}  // namespace ladder::step2
