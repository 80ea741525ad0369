#include "common/optim/flat_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"
#include "common/core/torch_types.hpp"

namespace ladder {
namespace {

at::Tensor zeros_under(MemoryCategory category, const FlatLayout& layout, NumberFormat format) {
  const MemoryScope scope(category);
  at::Tensor flat = at::empty({layout.numel}, layout.buffer(format));
  if (flat.is_cpu())
    prefer_huge_pages(flat.mutable_data_ptr(), static_cast<std::int64_t>(flat.nbytes()));
  return flat.zero_();
}

at::Tensor view_of(const at::Tensor& flat, const FlatTensor& tensor) {
  return flat.narrow(0, tensor.start, tensor.numel).view(tensor.shape);
}

// What the first trainable tensor has; a frozen one has no gradient, and so no type of it.
Precision precision_of(const std::vector<Unit>& units) {
  Precision precision;
  for (const Unit& unit : units) {
    for (const auto& [name, tensor] : unit.tensors) {
      precision = {format_of(tensor.scalar_type()),
                   format_of(tensor.grad_dtype().value_or(tensor.scalar_type()))};
      if (tensor.requires_grad()) return precision;
    }
  }
  return precision;
}

bool fits(const at::Tensor& tensor, const Precision& precision) {
  const at::ScalarType params = to_torch(precision.params);
  return tensor.scalar_type() == params &&
         (!tensor.requires_grad() ||
          tensor.grad_dtype().value_or(params) == to_torch(precision.grads));
}

std::optional<TensorPart> part_of(const Unit& unit, const std::string& name) {
  const auto part = unit.parts.find(name);
  return part == unit.parts.end() ? std::nullopt : std::optional(part->second);
}

}  // namespace

c10::TensorOptions FlatLayout::buffer(NumberFormat format) const {
  return at::TensorOptions().dtype(to_torch(format)).device(to_torch(device));
}

FlatLayout plan_flat_layout(const std::vector<Unit>& units, std::int64_t unit_multiple,
                            Device device) {
  const Precision precision = precision_of(units);
  std::vector<UnitShape> shapes;
  for (const Unit& unit : units) {
    shapes.push_back({unit.name, {}});
    for (const auto& [name, tensor] : unit.tensors) {
      check(fits(tensor, precision), "plan_flat_layout: '", name, "' is ", tensor.scalar_type(),
            " or has another type of gradient, but other tensors are ", to_torch(precision.params));
      shapes.back().tensors.push_back(
          {name, tensor.sizes().vec(), tensor.requires_grad(), part_of(unit, name)});
    }
  }
  return plan_flat_layout(shapes, precision, unit_multiple, device);
}

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
