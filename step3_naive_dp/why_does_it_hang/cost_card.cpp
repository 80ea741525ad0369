#include "common/comm/traffic_theory.hpp"
#include "common/train/build_model.hpp"
#include "common/train/cost.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"

namespace ladder::hang {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return replica_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  const int trainer = options.get<HangOptions>().trainer;
  const FlatLayout layout = layout_of(options);
  Traffic traffic = scalars_traffic(1, world_size, rank);
  traffic += scalars_traffic(2, world_size, rank);
  for (const FlatTensor& tensor : layout.tensors) {
    traffic +=
        all_reduce_traffic(tensor.numel, options.model.precision.grad_bytes(), world_size, rank);
  }
  if (trainer == 1 || trainer == 6) traffic += scalars_traffic(1, world_size, rank);
  if (trainer == 5 && world_size > 1) {
    traffic += send_traffic(layout.numel, options.model.precision.param_bytes());
    traffic[CommOp::kRecv].calls += 1;
  }
  return traffic;
}

}  // namespace ladder::hang
