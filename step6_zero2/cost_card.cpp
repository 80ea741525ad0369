// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step6_zero2/train.hpp"

namespace ladder {

std::int64_t gradient_bytes_in_flight(const FlatLayout& layout, std::int64_t num_microbatches) {
  const std::vector<GradientBucket> units = plan_unit_buckets(layout);
  std::int64_t most = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const bool is_first_of_pass = u == 0;
    const std::int64_t before = !is_first_of_pass      ? units[u - 1].numel
                                : num_microbatches > 1 ? units.back().numel
                                                       : 0;
    most = std::max(most, before + units[u].numel);
  }
  return layout.precision.grad_bytes() * most;
}

Traffic sharder_traffic(const FlatLayout& layout, int world_size, int rank) {
  Traffic traffic;
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    traffic += reduce_scatter_traffic(unit.numel, layout.precision.grad_bytes(), world_size, rank);
  return traffic;
}

namespace step6 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t numel = layout_of(options, shard_multiple(world_size)).numel;
  return {.parameters = options.model.precision.param_bytes() * numel,
          .gradients = options.model.precision.grad_bytes() * numel / world_size,
          .optimizer = optimizer_bytes(options, numel / world_size)};
}

StateBytes transient_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return {.gradients = gradient_bytes_in_flight(layout_of(options, shard_multiple(world_size)),
                                                options.data.num_microbatches)};
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  Traffic sent = step_scalars_traffic(world_size, rank);
  sent += norm_traffic(layout, world_size, rank);
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    sent += all_gather_traffic(unit.numel, options.model.precision.param_bytes(), world_size, rank);
  sent *= steps.count();
  Traffic gradients = microbatch_traffic(options, world_size, rank);
  return sent += gradients *= steps.batches.microbatches;
}

Traffic microbatch_traffic(const TrainOptions& options, int world_size, int rank) {
  return sharder_traffic(layout_of(options, shard_multiple(world_size)), world_size, rank);
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  const std::int64_t unit = largest_unit(layout), bytes_each = options.model.precision.grad_bytes();
  return ladder::working_bytes(options,
                               {fold_bytes(options, unit, bytes_each, world_size), 4.0 * unit});
}

}  // namespace step6
}  // namespace ladder
