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

at::Tensor view_of(const at::Tensor& flat, const FlatTensor& tensor) {
  return flat.narrow(0, tensor.start, tensor.numel).view(tensor.shape);
}

}  // namespace

FlatModel::FlatModel(const FlatLayout& layout, FlatGrads flat_grads)
    : layout_(layout), params_(zeros_under(MemoryCategory::kParameters, layout_.numel)) {
  if (flat_grads == FlatGrads::kHeld)
    grads_ = zeros_under(MemoryCategory::kGradients, layout_.numel);
}

FlatModel::FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple,
                     FlatGrads flat_grads)
    : FlatModel(plan_flat_layout(units, unit_multiple), flat_grads) {
  for (const Unit& unit : units) add(unit);
}

void FlatModel::add(const Unit& unit) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& named : unit.tensors) {
    const std::size_t index = leaves_.size();
    check(index < layout_.tensors.size() && layout_.tensors[index].name == named.name,
          "FlatModel: '", named.name, "' is not the next tensor of the layout");
    const FlatTensor& place = layout_.tensors[index];
    at::Tensor tensor = named.tensor;  // a handle: what is done to it is done to the model's
    check(tensor.scalar_type() == at::kFloat, "FlatModel: '", named.name, "' is ",
          tensor.scalar_type(), ", the flat buffers are Float");
    const at::Tensor view = view_of(params_, place);
    view.copy_(tensor);
    tensor.set_data(view);
    if (grads_.defined() && tensor.requires_grad()) tensor.mutable_grad() = view_of(grads_, place);
    leaves_.push_back(named);
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
    views.push_back({tensor.name, view_of(flat, tensor)});
  }
  return views;
}

}  // namespace ladder
