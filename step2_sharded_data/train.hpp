// Step 2: every rank reads the samples that it trains on, and no others.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step2 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

// The same as step 1: the Reducer's buckets are still there.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// What step 1 sends, plus one all-reduce of a double: each rank now knows only its own target
// count.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, its token ids, and the Reducer's buckets of other ranks.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step2_sharded_data",
      .train = train,
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .tries = never,  // it is there to be equalled
  };
}

}  // namespace ladder::step2
