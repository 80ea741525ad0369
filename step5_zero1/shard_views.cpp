// The slices of a plan (shard_plan.hpp), as tensors.
#include <algorithm>

#include "common/optim/optimizer.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

std::vector<at::Tensor> ShardPlan::slices_of_full(const at::Tensor& full) const {
  std::vector<at::Tensor> views;
  for (const UnitSlice& slice : slices) views.push_back(full.narrow(0, slice.start, slice.numel));
  return views;
}

std::vector<at::Tensor> ShardPlan::slices_of_shard(const at::Tensor& shard) const {
  std::vector<at::Tensor> views;
  for (const UnitSlice& slice : slices)
    views.push_back(shard.narrow(0, slice.shard_start, slice.numel));
  return views;
}

std::vector<OptimizerSlice> plan_own_updates(const ShardPlan& plan,
                                             const std::vector<at::Tensor>& params,
                                             const std::vector<at::Tensor>& grads) {
  std::vector<OptimizerSlice> updates;
  for (const UpdateRange& range : plan_updates(plan.layout)) {
    for (std::size_t u = 0; u < plan.slices.size(); ++u) {
      const UnitSlice& slice = plan.slices[u];
      const std::int64_t start = std::max(range.start, slice.start);
      const std::int64_t end = std::min(range.start + range.numel, slice.start + slice.numel);
      if (start >= end) continue;
      const std::int64_t offset = start - slice.start;
      updates.push_back({params[u].narrow(0, offset, end - start),
                         grads[u].narrow(0, offset, end - start), slice.shard_start + offset,
                         range.has_decay, range.tensor, start - range.start});
    }
  }
  return updates;
}

}  // namespace ladder
