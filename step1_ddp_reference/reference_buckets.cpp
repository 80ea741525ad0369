#include "step1_ddp_reference/reference_buckets.hpp"

#include <functional>
#include <numeric>

namespace ladder {

std::vector<std::int64_t> plan_reference_buckets(const std::vector<UnitShape>& units,
                                                 const Precision& precision) {
  std::vector<std::int64_t> numels;
  bool is_open = false;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    for (auto tensor = unit->tensors.rbegin(); tensor != unit->tensors.rend(); ++tensor) {
      if (!tensor->is_trainable) continue;
      if (!is_open) numels.push_back(0);
      numels.back() += std::accumulate(tensor->shape.begin(), tensor->shape.end(), std::int64_t{1},
                                       std::multiplies<>());
      const std::int64_t capacity =
          numels.size() == 1 ? kFirstReferenceBucketBytes : kReferenceBucketBytes;
      is_open = precision.param_bytes() * numels.back() < capacity;
    }
  }
  return numels;
}

}  // namespace ladder
