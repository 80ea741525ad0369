// The chapter of step 0 about CUDA graphs: a GPU repeats what it did for one microbatch.
#pragma once

#include "step0_single_gpu/train.hpp"

namespace ladder::cuda_graphs {

struct GraphOptions {
  void finalize(const TrainOptions& options) const {  // a graph calls no hooks
    check_usage(options.gradient_sum == SumMode::kOrdered,
                "--gradient-sum exact is for steps 0 to 9, not for ", options.step);
  }
};

// To the same bits as step 0. Throws UsageError in a world of several ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

// Those of step 0; the graphs' own memory is no model state. Throws UsageError on the CPU.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "cuda_graphs",
      .role = RankRole::kAlone,
      .keeps = {"simulated ranks"},
      .train = train,
      .state_bytes = state_bytes,
      .sends = step0::sends,
      .tries = never,
      .options = {.device = at::kCUDA, .own = step_options<OracleOptions, GraphOptions>()},
  };
}

}  // namespace ladder::cuda_graphs
