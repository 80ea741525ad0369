// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step3_naive_dp/train.hpp"

namespace ladder::step3 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return replica_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic = step_scalars_traffic(world_size, rank);
  for (const FlatTensor& tensor : layout_of(options).tensors) {
    traffic +=
        all_reduce_traffic(tensor.numel, options.model.precision.grad_bytes(), world_size, rank);
  }
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  double largest = 0;
  for (const FlatTensor& tensor : layout_of(options).tensors) {
    largest = std::max(largest, fold_bytes(options, tensor.numel,
                                           options.model.precision.grad_bytes(), world_size));
  }
  return ladder::working_bytes(options, {.after = largest});
}

}  // namespace ladder::step3
