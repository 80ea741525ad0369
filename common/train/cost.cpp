#include "common/train/cost.hpp"

#include "common/comm/traffic_theory.hpp"

namespace ladder {

StateBytes replica_state_bytes(const TrainOptions& options) {
  const std::int64_t elements = layout_of(options).numel;
  return {.parameters = 4 * elements,
          .gradients = 4 * elements,
          .optimizer = optimizer_bytes(options, elements)};
}

std::int64_t optimizer_bytes(const TrainOptions& options, std::int64_t numel) {
  return options.optimizer.kind == OptimizerKind::kAdamW ? 8 * numel : 0;
}

Traffic scalars_traffic(std::int64_t count, int world_size, int rank) {
  return all_reduce_traffic(count, sizeof(double), world_size, rank);
}

}  // namespace ladder
