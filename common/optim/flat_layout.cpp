#include "common/optim/flat_layout.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "common/core/check.hpp"

namespace ladder {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Precision precision_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.grad_dtype().value_or(tensor.scalar_type())};
}

}  // namespace

std::int64_t FlatLayout::alignment() const {
  return kTensorAlignmentBytes / precision.narrowest_bytes();
}

FlatLayout in_fp32(FlatLayout layout) {
  layout.precision = {};
  return layout;
}

FlatLayout plan_flat_layout(const std::vector<Unit>& units, std::int64_t unit_multiple) {
  check(unit_multiple >= 1, "plan_flat_layout: the unit multiple is ", unit_multiple,
        ", it must be at least 1");
  FlatLayout layout;
  std::set<std::string> names;
  const auto first = std::find_if(units.begin(), units.end(),
                                  [](const Unit& unit) { return !unit.tensors.empty(); });
  if (first != units.end()) layout.precision = precision_of(first->tensors.front().tensor);
  for (const Unit& unit : units) {
    const std::int64_t unit_start = layout.numel;
    for (const auto& [name, tensor] : unit.tensors) {
      check(names.insert(name).second, "plan_flat_layout: two tensors are named '", name, "'");
      check(precision_of(tensor) == layout.precision, "plan_flat_layout: '", name, "' is ",
            tensor.scalar_type(), ", but the tensors before it are ", layout.precision.params);
      const std::int64_t padded = round_up(tensor.numel(), layout.alignment());
      layout.tensors.push_back({name, tensor.sizes().vec(), layout.numel, tensor.numel(), padded,
                                tensor.requires_grad()});
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
