#include "step6_zero2/sharder_cost.hpp"

#include <algorithm>

#include "common/comm/traffic_theory.hpp"
#include "step5_zero1/shard_plan.hpp"

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

}  // namespace ladder
