#include "common/train/cost.hpp"

#include "common/comm/traffic_theory.hpp"

namespace ladder {

StateBytes replica_state_bytes(const TrainOptions& options) {
  const std::int64_t elements = layout_of(options).numel;
  return {.parameters = options.model.precision.param_bytes() * elements,
          .gradients = options.model.precision.grad_bytes() * elements,
          .optimizer = optimizer_bytes(options, elements)};
}

std::int64_t optimizer_bytes(const TrainOptions& options, std::int64_t numel) {
  const bool has_masters =
      options.model.precision.has_16_bit_params() && options.optimizer.masters == Masters::kFp32;
  const std::int64_t moments = options.optimizer.kind == OptimizerKind::kAdamW ? 8 : 0;
  return ((has_masters ? 4 : 0) + moments) * numel;
}

Traffic scalars_traffic(std::int64_t count, int world_size, int rank) {
  return all_reduce_traffic(count, sizeof(double), world_size, rank);
}

}  // namespace ladder
