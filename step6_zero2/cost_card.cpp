// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step6_zero2/sharder_cost.hpp"
#include "step6_zero2/train.hpp"

namespace ladder::step6 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t numel = layout_of(options, shard_multiple(world_size)).numel;
  return {.parameters = options.model.precision.param_bytes() * numel,
          .gradients = options.model.precision.grad_bytes() * numel / world_size,
          .optimizer = optimizer_bytes(options, numel / world_size)};
}

PeakBytes peak_bytes(const TrainOptions& options, int world_size, int rank) {
  PeakBytes peak = peak_of(state_bytes(options, world_size, rank));
  peak.gradients += gradient_bytes_in_flight(layout_of(options, shard_multiple(world_size)),
                                             options.data.num_microbatches);
  return peak;
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  Traffic sent = scalars_traffic(1, world_size, rank);
  sent += scalars_traffic(2, world_size, rank);
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

}  // namespace ladder::step6
