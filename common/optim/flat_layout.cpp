#include "common/optim/flat_layout.hpp"

#include <ATen/core/Tensor.h>

#include <numeric>
#include <set>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What the first trainable tensor has; a frozen one has no gradient, and so no type of it.
Precision precision_of(const std::vector<Unit>& units) {
  Precision precision;
  for (const Unit& unit : units) {
    for (const auto& [name, tensor] : unit.tensors) {
      precision = {tensor.scalar_type(), tensor.grad_dtype().value_or(tensor.scalar_type())};
      if (tensor.requires_grad()) return precision;
    }
  }
  return precision;
}

bool fits(const at::Tensor& tensor, const Precision& precision) {
  return tensor.scalar_type() == precision.params &&
         (!tensor.requires_grad() ||
          tensor.grad_dtype().value_or(precision.params) == precision.grads);
}

std::optional<TensorPart> part_of(const Unit& unit, const std::string& name) {
  const auto part = unit.parts.find(name);
  return part == unit.parts.end() ? std::nullopt : std::optional(part->second);
}

// The gap belongs to the tensor before it.
void start_section(FlatLayout& layout, std::int64_t unit_start) {
  const std::int64_t end = unit_start + round_up(layout.numel - unit_start, kNormBlock);
  if (end > layout.numel) layout.tensors.back().padded_numel += end - layout.numel;
  layout.numel = end;
}

}  // namespace

std::int64_t FlatLayout::alignment() const {
  const std::int64_t bytes = device.is_cuda() ? kTensorAlignmentBytesOnGpu : kTensorAlignmentBytes;
  return bytes / precision.narrowest_bytes();
}

std::map<std::string, TensorPart> parts_of(const FlatLayout& layout) {
  std::map<std::string, TensorPart> parts;
  for (const FlatTensor& tensor : layout.tensors)
    if (tensor.part) parts[tensor.name] = *tensor.part;
  return parts;
}

FlatLayout in_fp32(FlatLayout layout) {
  layout.precision = {};
  return layout;
}

FlatLayout plan_flat_layout(const std::vector<Unit>& units, std::int64_t unit_multiple,
                            at::Device device) {
  check(unit_multiple >= 1, "plan_flat_layout: the unit multiple is ", unit_multiple,
        ", it must be at least 1");
  FlatLayout layout;
  std::set<std::string> names;
  layout.precision = precision_of(units);
  layout.device = device;
  for (const Unit& unit : units) {
    const std::int64_t unit_start = layout.numel;
    int section = -1;
    for (const auto& [name, tensor] : unit.tensors) {
      const std::optional<TensorPart> part = part_of(unit, name);
      if (part && std::exchange(section, part->index) != part->index)
        start_section(layout, unit_start);
      check(names.insert(name).second, "plan_flat_layout: two tensors are named '", name, "'");
      check(fits(tensor, layout.precision), "plan_flat_layout: '", name, "' is ",
            tensor.scalar_type(), " or has another type of gradient, but other tensors are ",
            layout.precision.params);
      const std::int64_t padded = round_up(tensor.numel(), layout.alignment());
      layout.tensors.push_back({name, tensor.sizes().vec(), layout.numel, tensor.numel(), padded,
                                tensor.requires_grad(), part});
      layout.numel += padded;
      layout.num_parameters += tensor.numel();
    }
    const std::int64_t multiple = std::lcm(unit_multiple, layout.alignment());
    layout.numel = unit_start + round_up(layout.numel - unit_start, multiple);
    layout.units.push_back({unit.name, unit_start, layout.numel - unit_start});
  }
  return layout;
}

}  // namespace ladder
