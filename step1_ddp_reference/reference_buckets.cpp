#include "step1_ddp_reference/reference_buckets.hpp"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

namespace ladder {

std::vector<std::int64_t> plan_reference_buckets(const std::vector<Unit>& units) {
  std::vector<at::Tensor> tensors;
  for (const Unit& unit : units) {
    for (const NamedTensor& named : unit.tensors) {
      if (named.tensor.requires_grad()) tensors.push_back(named.tensor);
    }
  }
  std::reverse(tensors.begin(), tensors.end());
  std::vector<std::int64_t> numels;
  if (tensors.empty()) return numels;
  for (const std::vector<std::size_t>& bucket : assign_reference_buckets(tensors)) {
    std::int64_t numel = 0;
    for (const std::size_t index : bucket) numel += tensors[index].numel();
    numels.push_back(numel);
  }
  return numels;
}

std::vector<std::vector<std::size_t>> assign_reference_buckets(
    const std::vector<at::Tensor>& tensors) {
  return std::get<0>(c10d::compute_bucket_assignment_by_size(
      tensors, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap}));
}

}  // namespace ladder
