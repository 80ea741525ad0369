// What theory says of step 3.
#pragma once

#include "common/train/theory.hpp"

namespace ladder::step3 {

// A replica and nothing else.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per tensor, without padding, plus one of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch; later, what other ranks send of a tensor.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step3_naive_dp",
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
  };
}

}  // namespace ladder::step3
