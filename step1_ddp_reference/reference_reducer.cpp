#include "step1_ddp_reference/reference_reducer.hpp"

#include <torch/headeronly/version.h>

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "common/core/check.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"

namespace ladder {
namespace {

static_assert(kFirstReferenceBucketBytes == c10d::kDefaultFirstBucketBytes &&
              kReferenceBucketBytes == c10d::kDefaultBucketBytesCap);

constexpr std::int64_t kNotReady = -1;

// The Reducer is not a public interface of libtorch. 2.11 to 2.15 take these arguments, earlier
// versions fewer.
static_assert(std::is_constructible_v<
                  c10d::Reducer, std::vector<at::Tensor>, std::vector<std::vector<std::size_t>>,
                  c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, std::int64_t, bool,
                  bool, std::unordered_map<std::size_t, std::string>, std::int64_t, bool, bool,
                  std::vector<std::int64_t>>,
              "the c10d::Reducer of libtorch " TORCH_VERSION
              " does not take the arguments of versions 2.11 to 2.15, which step 1 passes");

// The leaves in reverse: roughly the order in which backward finishes their gradients.
std::vector<NamedTensor> trainable_leaves(const FlatModel& model) {
  std::vector<NamedTensor> leaves;
  for (const NamedTensor& leaf : model.leaves()) {
    if (leaf.tensor.requires_grad()) leaves.push_back(leaf);
  }
  check(!leaves.empty(), "ReferenceDdp: no parameter is trainable, so there is nothing to reduce");
  std::reverse(leaves.begin(), leaves.end());
  return leaves;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& leaves) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& leaf : leaves) tensors.push_back(leaf.tensor);
  return tensors;
}

}  // namespace

std::vector<std::vector<std::size_t>> assign_reference_buckets(
    const std::vector<at::Tensor>& tensors) {
  return std::get<0>(c10d::compute_bucket_assignment_by_size(
      tensors, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap}));
}

ReferenceReducer::ReferenceReducer(const FlatModel& model,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& group)
    : ReferenceReducer(trainable_leaves(model), group) {}

ReferenceReducer::ReferenceReducer(const std::vector<NamedTensor>& leaves,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& group)
    : c10d::Reducer(tensors_of(leaves), assign_reference_buckets(tensors_of(leaves)), group,
                    /*expect_sparse_gradients=*/std::vector<bool>(leaves.size(), false),
                    c10d::kDefaultBucketBytesCap,
                    /*find_unused_parameters=*/false,
                    /*gradient_as_bucket_view=*/false,
                    /*param_names=*/{}, c10d::kDefaultFirstBucketBytes,
                    /*skip_all_reduce_unused_params=*/false,
                    /*use_python_reducer=*/false,
                    /*bucket_bytes_cap_list=*/{}) {
  for (const NamedTensor& leaf : leaves) names_.push_back(leaf.name);
  // Buckets are of the parameters' type at first. Those of a 16-bit model carry its gradients in
  // fp32.
  const at::Tensor& first = leaves.front().tensor;
  const at::ScalarType grads = first.grad_dtype().value_or(first.scalar_type());
  if (grads != first.scalar_type()) {
    set_mixed_precision_param_dtype(grads);
    initialize_buckets(assign_reference_buckets(tensors_of(leaves)));
  }
  // Otherwise every step would record the order in which gradients become ready, for a
  // rebuild_buckets() that is never called.
  has_rebuilt_bucket_ = true;
}

void ReferenceReducer::expect_backward() {
  std::fill(backward_stats_.begin(), backward_stats_.end(), kNotReady);
  prepare_for_forward();  // only counts the steps, for its timing statistics
  prepare_for_backward({});
}

std::vector<std::string> ReferenceReducer::params_without_gradient() const {
  std::vector<std::string> missing;
  // For each parameter, the nanoseconds from expect_backward() until its gradient was ready.
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (backward_stats_[i] == kNotReady) missing.push_back(names_[i]);
  }
  return missing;
}

}  // namespace ladder
