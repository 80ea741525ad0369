#include "common/optim/flat_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"

namespace ladder {
namespace {

at::Tensor zeros_under(MemoryCategory category, const FlatLayout& layout, at::ScalarType type) {
  const MemoryScope scope(category);
  at::Tensor flat = at::empty({layout.numel}, layout.buffer(type));
  if (flat.is_cpu())
    prefer_huge_pages(flat.mutable_data_ptr(), static_cast<std::int64_t>(flat.nbytes()));
  return flat.zero_();
}

at::Tensor view_of(const at::Tensor& flat, const FlatTensor& tensor) {
  return flat.narrow(0, tensor.start, tensor.numel).view(tensor.shape);
}

}  // namespace

FlatModel::FlatModel(const FlatLayout& layout)
    : layout_(layout),
      params_(zeros_under(MemoryCategory::kParameters, layout_, layout_.precision.params)) {}

FlatModel::FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple)
    : FlatModel(plan_flat_layout(units, unit_multiple)) {
  for (const Unit& unit : units) add(unit);
}

void FlatModel::add(const Unit& unit) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& named : unit.tensors) {
    const std::size_t index = leaves_.size();
    check(index < layout_.tensors.size() && layout_.tensors[index].name == named.name,
          "FlatModel: '", named.name, "' is not the next tensor of the layout");
    const FlatTensor& place = layout_.tensors[index];
    at::Tensor tensor = named.tensor;  // a handle to the model's own tensor
    check(tensor.scalar_type() == params_.scalar_type(), "FlatModel: '", named.name, "' is ",
          tensor.scalar_type(), ", but the flat buffer is ", params_.scalar_type());
    const at::Tensor view = view_of(params_, place);
    view.copy_(tensor);
    tensor.set_data(view);
    leaves_.push_back(named);
  }
}

std::vector<NamedTensor> FlatModel::named_params() const {
  return named_views(layout_, params_);
}

FlatGradients::FlatGradients(const FlatModel& model)
    : model_(model),
      flat_(
          zeros_under(MemoryCategory::kGradients, model.layout(), model.layout().precision.grads)) {
  const FlatLayout& layout = model.layout();
  check(model.leaves().size() == layout.tensors.size(), "FlatGradients: ", model.leaves().size(),
        " of the layout's ", layout.tensors.size(), " tensors are in the model so far");
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const at::Tensor& leaf = model.leaves()[i].tensor;
    if (leaf.requires_grad()) leaf.mutable_grad() = view_of(flat_, layout.tensors[i]);
  }
}

void FlatGradients::zero() {
  flat_.zero_();
}

std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat) {
  std::vector<NamedTensor> views;
  for (const FlatTensor& tensor : layout.tensors) {
    views.push_back({tensor.name, view_of(flat, tensor)});
  }
  return views;
}

std::vector<at::Tensor> unit_views(const FlatLayout& layout, const at::Tensor& flat) {
  std::vector<at::Tensor> views;
  for (const FlatUnit& unit : layout.units) views.push_back(flat.narrow(0, unit.start, unit.numel));
  return views;
}

}  // namespace ladder
