#include "step4_bucketed_ddp/bucket_plan.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<GradientBucket> plan_buckets(const FlatLayout& layout, std::int64_t capacity_bytes) {
  check(capacity_bytes > 0, "plan_buckets: the capacity is ", capacity_bytes,
        " bytes, it must be positive");
  const std::int64_t element_bytes = layout.precision.grad_bytes();
  std::vector<GradientBucket> plan;
  bool is_open = false;  // the last bucket may take the next tensor
  for (auto i = static_cast<std::int64_t>(layout.tensors.size()) - 1; i >= 0; --i) {
    const FlatTensor& tensor = layout.tensors[static_cast<std::size_t>(i)];
    if (!tensor.is_trainable) {
      is_open = false;
      continue;
    }
    if (is_open) {
      GradientBucket& bucket = plan.back();
      const std::int64_t end = bucket.start + bucket.numel;
      is_open = (end - tensor.start) * element_bytes <= capacity_bytes;
      if (is_open) {
        bucket = {tensor.start, end - tensor.start, std::move(bucket.tensors)};
        bucket.tensors.push_back(i);
        continue;
      }
    }
    plan.push_back({tensor.start, tensor.padded_numel, {i}});
    is_open = true;
  }
  return plan;
}

}  // namespace ladder
