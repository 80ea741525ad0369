// Step 3: our own data parallelism, the naive way.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step3 {

TrainReport train(const TrainOptions& options, Communicator& comm);  // collective

// A replica and nothing else.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per tensor, without padding, plus one of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch; later, what other ranks send of a tensor.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step3_naive_dp",
      .train = train,
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
  };
}

}  // namespace ladder::step3
