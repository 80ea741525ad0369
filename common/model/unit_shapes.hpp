// The units of a model as data: which tensors its layers have, in their order, without a tensor. What
// build_layers() makes has these names and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/unit_shape.hpp"
#include "common/model/family.hpp"
#include "common/model/part_plan.hpp"

namespace ladder {

// A layer's unit, and the parameters of which it has all or some parts.
struct LayerShape {
  std::string name;  // "embedding", "block0", …, "head"
  ParameterShapes parameters;
  bool is_tied_head = false;  // whose weight is the embedding's, a layer before it
};

// Of these layers of the list, in ascending order: 0 is the embedding, 1 … L are the blocks, L + 1 is
// the head. Throws CheckError for no layers, an order that does not ascend, or a layer that the
// model does not have.
std::vector<LayerShape> layer_shapes(const Family& family, const std::vector<std::int64_t>& layers);
std::vector<std::int64_t> all_layers(const ModelOptions& options);

// A parameter, or this process's parts of it. One part is the parameter itself.
std::vector<TensorShape> shapes_of(const ParameterShape& parameter, const Parts& parts);

// What all parts use comes first, then part after part, each in the order of the parameters.
UnitShape unit_shape(const LayerShape& layer, const Parts& parts);

// Throws what layer_shapes() and family_of() throw, and CheckError unless the parts are those of the
// options.
std::vector<UnitShape> unit_shapes(const ModelOptions& options,
                                   const std::vector<std::int64_t>& layers, const Parts& parts);
std::vector<UnitShape> unit_shapes(const ModelOptions& options);

}  // namespace ladder
