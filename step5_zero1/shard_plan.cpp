#include "step5_zero1/shard_plan.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"

namespace ladder {

std::int64_t shard_multiple(int world_size) {
  return world_size * kNormBlock;
}

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

ShardPlan plan_shards(const FlatLayout& layout, int world_size, int rank) {
  ShardPlan plan = {layout, world_size, rank, {}, 0};
  for (const FlatUnit& unit : layout.units) {
    check(unit.numel % shard_multiple(world_size) == 0, "plan_shards: unit '", unit.name, "' has ",
          unit.numel, " elements, which do not divide into ", world_size, " slices of ", kNormBlock,
          "s; lay the model out with shard_multiple(", world_size, ")");
    const std::int64_t numel = unit.numel / world_size;
    plan.slices.push_back({unit.start + rank * numel, plan.numel, numel});
    plan.numel += numel;
  }
  return plan;
}

bool has_trainable(const FlatLayout& layout, const FlatUnit& unit) {
  return std::any_of(layout.tensors.begin(), layout.tensors.end(), [&](const FlatTensor& tensor) {
    return tensor.is_trainable && tensor.start >= unit.start &&
           tensor.start < unit.start + unit.numel;
  });
}

std::vector<GradientBucket> plan_unit_buckets(const FlatLayout& layout) {
  std::vector<GradientBucket> plan;
  auto tensor = static_cast<std::int64_t>(layout.tensors.size()) - 1;
  for (auto unit = layout.units.rbegin(); unit != layout.units.rend(); ++unit) {
    GradientBucket bucket = {unit->start, unit->numel, {}};
    for (; tensor >= 0; --tensor) {
      const FlatTensor& candidate = layout.tensors[static_cast<std::size_t>(tensor)];
      if (candidate.start < unit->start) break;
      if (candidate.is_trainable) bucket.tensors.push_back(tensor);
    }
    if (!bucket.tensors.empty()) plan.push_back(std::move(bucket));
  }
  return plan;
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
