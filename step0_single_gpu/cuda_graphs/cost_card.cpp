#include "common/core/check.hpp"
#include "step0_single_gpu/cuda_graphs/theory.hpp"

namespace ladder::cuda_graphs {

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  check_usage(options.device.is_cuda(),
              "--device is cpu, but a CUDA graph records what a GPU does; without graphs, ./ladder "
              "train step0 trains the same model");
  check_usage(
      options.model.recompute != Recompute::kBlocks,
      "--recompute blocks: its backward starts another one inside, which these graphs do not "
      "record; without graphs, ./ladder train step0 recomputes blocks, and with them "
      "--recompute cheap");
  return step0::state_bytes(options, world_size, rank);
}

}  // namespace ladder::cuda_graphs
