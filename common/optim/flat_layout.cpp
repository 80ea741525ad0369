#include "common/optim/flat_layout.hpp"

#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
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

FlatLayout plan_flat_layout(const std::vector<UnitShape>& units, const Precision& precision,
                            std::int64_t unit_multiple, Device device) {
  check(unit_multiple >= 1, "plan_flat_layout: the unit multiple is ", unit_multiple,
        ", it must be at least 1");
  FlatLayout layout;
  std::set<std::string> names;
  layout.precision = precision;
  layout.device = device;
  for (const UnitShape& unit : units) {
    const std::int64_t unit_start = layout.numel;
    int section = -1;
    for (const auto& [name, shape, is_trainable, part] : unit.tensors) {
      if (part && std::exchange(section, part->index) != part->index)
        start_section(layout, unit_start);
      check(names.insert(name).second, "plan_flat_layout: two tensors are named '", name, "'");
      const std::int64_t numel =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
      const std::int64_t padded = round_up(numel, layout.alignment());
      layout.tensors.push_back({name, shape, layout.numel, numel, padded, is_trainable, part});
      layout.numel += padded;
      layout.num_parameters += numel;
    }
    const std::int64_t multiple = std::lcm(unit_multiple, layout.alignment());
    layout.numel = unit_start + round_up(layout.numel - unit_start, multiple);
    layout.units.push_back({unit.name, unit_start, layout.numel - unit_start});
  }
  return layout;
}

}  // namespace ladder
