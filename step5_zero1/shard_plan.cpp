#include "step5_zero1/shard_plan.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {

std::int64_t shard_multiple(int world_size) {
  return world_size * kNormBlock;
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

}  // namespace ladder
