// What theory says of the chapter of step 0 about CUDA graphs.
#pragma once

#include "step0_single_gpu/theory.hpp"

namespace ladder::cuda_graphs {

struct GraphOptions {
  void finalize(const TrainOptions& options) const {  // a graph calls no hooks
    check_usage(options.gradient_sum == SumMode::kOrdered,
                "--gradient-sum exact is for steps 0 to 9, not for ", options.step);
  }
};

// Those of step 0; the graphs' own memory is no model state. Throws UsageError on the CPU.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "cuda_graphs",
      .role = RankRole::kAlone,
      .keeps = {"simulated ranks"},
      .state_bytes = state_bytes,
      .sends = step0::sends,
      .tries = never,
      .options = {.device = Device::kCuda, .own = step_options<OracleOptions, GraphOptions>()},
  };
}

}  // namespace ladder::cuda_graphs
