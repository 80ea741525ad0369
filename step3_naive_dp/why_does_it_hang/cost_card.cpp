#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"

namespace ladder::hang {

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  const int trainer = options.get<HangOptions>().trainer;
  Traffic traffic = step3::step_traffic(options, world_size, rank);
  if (trainer == 1 || trainer == 6) traffic += scalars_traffic(1, world_size, rank);
  if (trainer == 5 && world_size > 1) {
    traffic += send_traffic(layout_of(options).numel, options.model.precision.param_bytes());
    traffic[CommOp::kRecv].calls += 1;
  }
  return traffic;
}

}  // namespace ladder::hang
