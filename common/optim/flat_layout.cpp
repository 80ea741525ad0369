#include "common/optim/flat_layout.hpp"

#include <numeric>
#include <set>

#include "common/core/check.hpp"

namespace ladder {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout plan_flat_layout(const std::vector<Unit>& units, std::int64_t unit_multiple) {
  check(unit_multiple >= 1, "plan_flat_layout: the unit multiple is ", unit_multiple,
        ", it must be at least 1");
  FlatLayout layout;
  std::set<std::string> names;
  for (const Unit& unit : units) {
    const std::int64_t unit_start = layout.numel;
    for (const auto& [name, tensor] : unit.tensors) {
      check(names.insert(name).second, "plan_flat_layout: two tensors are named '", name, "'");
      const std::int64_t padded = round_up(tensor.numel(), kTensorAlignment);
      layout.tensors.push_back({name, tensor.sizes().vec(), layout.numel, tensor.numel(), padded,
                                tensor.requires_grad()});
      layout.numel += padded;
      layout.num_parameters += tensor.numel();
    }
    const std::int64_t multiple = std::lcm(unit_multiple, kTensorAlignment);
    layout.numel = unit_start + round_up(layout.numel - unit_start, multiple);
    layout.units.push_back({unit.name, unit_start, layout.numel - unit_start});
  }
  return layout;
}

}  // namespace ladder
