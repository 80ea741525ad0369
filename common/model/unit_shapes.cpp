#include "common/model/unit_shapes.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "common/core/check.hpp"

namespace ladder {

std::vector<std::int64_t> all_layers(const ModelOptions& options) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(options.layers + 2));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<LayerShape> layer_shapes(const Family& family,
                                     const std::vector<std::int64_t>& layers) {
  const ModelOptions& options = family.options();
  const std::int64_t head = options.layers + 1;
  check(!layers.empty(), "a part of a model needs at least one layer");
  std::int64_t previous = -1;
  std::vector<LayerShape> shapes;
  for (const std::int64_t layer : layers) {
    check(previous < layer && layer <= head, "layer ", layer, " after layer ", previous,
          ": this model has the layers 0 to ", head, ", in ascending order");
    previous = layer;
    if (layer == 0) {
      shapes.push_back({"embedding", family.embedding()});
    } else if (layer < head) {
      shapes.push_back({concat("block", layer - 1), family.block(layer - 1)});
    } else {
      shapes.push_back({"head", family.final_norm()});
      shapes.back().is_tied_head = options.tie_embeddings && layers.front() == 0;
      if (!shapes.back().is_tied_head) shapes.back().parameters.push_back(family.head());
    }
  }
  return shapes;
}

std::vector<TensorShape> shapes_of(const ParameterShape& parameter, const Parts& parts) {
  const auto& [name, shape, cut, std, value] = parameter;
  if (!cut || parts.total == 1) return {{name, shape}};
  std::vector<TensorShape> tensors;
  for (int index = parts.first; index < parts.first + parts.own; ++index) {
    const TensorPart part = part_of(name, shape, *cut, index, parts.total);
    tensors.push_back(
        {concat(name, "#", index), shape_of_piece(part), /*is_trainable=*/true, part});
  }
  return tensors;
}

UnitShape unit_shape(const LayerShape& layer, const Parts& parts) {
  UnitShape unit = {layer.name, {}};
  for (const ParameterShape& parameter : layer.parameters)
    for (TensorShape& tensor : shapes_of(parameter, parts))
      unit.tensors.push_back(std::move(tensor));
  const auto section = [](const TensorShape& tensor) {
    return tensor.part ? tensor.part->index : -1;
  };
  std::ranges::stable_sort(unit.tensors, {}, section);
  return unit;
}

std::vector<UnitShape> unit_shapes(const ModelOptions& options,
                                   const std::vector<std::int64_t>& layers, const Parts& parts) {
  check(parts.total == options.product_parts, "unit_shapes: parts of ", parts.total,
        ", but --product-parts is ", options.product_parts);
  std::vector<UnitShape> units;
  for (const LayerShape& layer : layer_shapes(*family_of(options), layers))
    units.push_back(unit_shape(layer, parts));
  return units;
}

std::vector<UnitShape> unit_shapes(const ModelOptions& options) {
  return unit_shapes(options, all_layers(options),
                     all_parts(static_cast<int>(options.product_parts)));
}

}  // namespace ladder
