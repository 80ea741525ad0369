// A parameter of a layer before it is a tensor. A family says each one once; the layout of a model is
// planned from them (unit_shapes.hpp), and its tensors are made from them (family_layers.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/cut.hpp"

namespace ladder {

inline constexpr double kInitStd = 0.02;

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::optional<Cut> cut = {};  // how its parts are cut; nothing: all parts use it
  // What it starts as: N(0, std), or, if std is 0, `value` everywhere.
  double std = 0;
  double value = 0;
};

// In the order in which a layer's unit lists them, but for the parts, which come last.
using ParameterShapes = std::vector<ParameterShape>;

}  // namespace ladder
