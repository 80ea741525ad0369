// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step5_zero1/train.hpp"

namespace ladder::step5 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t numel = layout_of(options, shard_multiple(world_size)).numel;
  return {.parameters = options.model.precision.param_bytes() * numel,
          .gradients = options.model.precision.grad_bytes() * numel,
          .optimizer = optimizer_bytes(options, numel / world_size)};
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  Traffic traffic = step_scalars_traffic(world_size, rank);
  traffic += norm_traffic(layout, world_size, rank);
  for (const GradientBucket& unit : plan_unit_buckets(layout)) {
    traffic +=
        reduce_scatter_traffic(unit.numel, options.model.precision.grad_bytes(), world_size, rank);
    traffic +=
        all_gather_traffic(unit.numel, options.model.precision.param_bytes(), world_size, rank);
  }
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  const std::int64_t bytes_each = options.model.precision.grad_bytes();
  const double all = fold_bytes(options, layout.numel, bytes_each, world_size);
  return ladder::working_bytes(options, {.after = std::max(all, 4.0 * largest_unit(layout))});
}

}  // namespace ladder::step5
