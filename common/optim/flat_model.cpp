#include "common/optim/flat_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"

namespace ladder {
namespace {

at::Tensor zeros_under(MemoryCategory category, std::int64_t numel) {
  const MemoryScope scope(category);
  at::Tensor flat = at::empty({numel}, at::kFloat);
  prefer_huge_pages(flat.mutable_data_ptr(), static_cast<std::int64_t>(flat.nbytes()));
  return flat.zero_();
}

}  // namespace

FlatModel::FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple,
                     FlatGrads flat_grads)
    : layout_(plan_flat_layout(units, unit_multiple)),
      params_(zeros_under(MemoryCategory::kParameters, layout_.numel)) {
  const bool has_grads = flat_grads == FlatGrads::kHeld;
  if (has_grads) grads_ = zeros_under(MemoryCategory::kGradients, layout_.numel);
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> param_views = named_views(layout_, params_);
  const std::vector<NamedTensor> grad_views =
      has_grads ? named_views(layout_, grads_) : std::vector<NamedTensor>();
  std::size_t i = 0;
  for (const Unit& unit : units) {
    for (const NamedTensor& named : unit.tensors) {
      at::Tensor tensor = named.tensor;  // a handle: what is done to it is done to the model's
      check(tensor.scalar_type() == at::kFloat, "FlatModel: '", named.name, "' is ",
            tensor.scalar_type(), ", the flat buffers are Float");
      leaves_.push_back(named);
      param_views[i].tensor.copy_(tensor);
      tensor.set_data(param_views[i].tensor);
      if (has_grads && tensor.requires_grad()) tensor.mutable_grad() = grad_views[i].tensor;
      ++i;
    }
  }
}

void FlatModel::zero_grad() {
  grads_.zero_();
}

std::vector<NamedTensor> FlatModel::named_params() const {
  return named_views(layout_, params_);
}

std::vector<NamedTensor> FlatModel::named_grads() const {
  return named_views(layout_, grads_);
}

std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat) {
  std::vector<NamedTensor> views;
  for (const FlatTensor& tensor : layout.tensors) {
    views.push_back({tensor.name, flat.narrow(0, tensor.start, tensor.numel).view(tensor.shape)});
  }
  return views;
}

}  // namespace ladder
