// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/sharded_model.hpp"
#include "step7_zero3/train.hpp"

namespace ladder {

std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied) {
  const auto num_units = static_cast<std::int64_t>(layout.units.size());
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < num_units; ++first) {
    const std::int64_t end = std::min(first + prefetch + 1, num_units);
    std::int64_t whole = is_tied && first > 0 ? layout.units[0].numel : 0;
    for (std::int64_t u = first; u < end; ++u)
      whole += layout.units[static_cast<std::size_t>(u)].numel;
    most = std::max(most, whole);
  }
  return most;
}

namespace step7 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t own = layout_of(options, shard_multiple(world_size)).numel / world_size;
  return {.parameters = options.model.precision.param_bytes() * own,
          .gradients = options.model.precision.grad_bytes() * own,
          .optimizer = optimizer_bytes(options, own)};
}

StateBytes transient_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  const int prefetch = options.get<PrefetchOptions>().num_units;
  return {.parameters = layout.precision.param_bytes() *
                        peak_whole_numel(layout, prefetch, options.model.tie_embeddings),
          .gradients = gradient_bytes_in_flight(layout, options.data.num_microbatches)};
}

Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  Traffic sent = step_scalars_traffic(world_size, rank);
  for (int norm = 0; norm < 2; ++norm) sent += norm_traffic(layout, world_size, rank);
  sent *= steps.count();
  Traffic microbatches = microbatch_traffic(options, world_size, rank);
  return sent += microbatches *= steps.batches.microbatches;
}

Traffic microbatch_traffic(const TrainOptions& options, int world_size, int rank) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  Traffic traffic = sharder_traffic(layout, world_size, rank);
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const bool is_block = u > 0 && u + 1 < layout.units.size();
    for (int gather = 0; gather < (is_block ? 2 : 1); ++gather)
      traffic += all_gather_traffic(layout.units[u].numel, layout.precision.param_bytes(),
                                    world_size, rank);
  }
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  const std::int64_t unit = largest_unit(layout), bytes_each = options.model.precision.grad_bytes();
  return ladder::working_bytes(options,
                               {fold_bytes(options, unit, bytes_each, world_size), 4.0 * unit});
}

}  // namespace step7
}  // namespace ladder
