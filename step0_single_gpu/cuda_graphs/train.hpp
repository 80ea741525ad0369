// The chapter of step 0 about CUDA graphs: a GPU repeats what it did for one microbatch.
#pragma once

#include "common/train/trainer.hpp"
#include "step0_single_gpu/cuda_graphs/theory.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder::cuda_graphs {

// To the same bits as step 0. Throws UsageError in a world of several ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::cuda_graphs
