// A model is a list of layers. No code outside this folder depends on anything else about it.
//
// A layer consists of its unit (the tensors that it owns), a function of the previous layer's
// output, and, if needed, the index of another layer whose unit it reads (a tied head reads the
// token embedding). Code that cuts a model walks this list: ZeRO-3 unshards one layer after the
// other, a pipeline stage builds and runs only a part of the list. build_layers.hpp builds it, for
// any family of models. No layer knows about ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/core/unit.hpp"
#include "common/model/parts.hpp"

namespace ladder {

struct Layer {
  Unit unit;
  // The first layer of a model takes tokens [B, T] int64, the last one returns logits [B, T, V];
  // layers in between pass activations [B, T, C].
  std::function<at::Tensor(const at::Tensor& input)> forward;
  std::optional<std::size_t> reads = {};  // the index of another layer whose unit it also needs
};

struct Model {
  std::vector<Layer> layers;
  VocabParts parts = {};  // which parts of its layers are here, and of its logits

  at::Tensor forward(const at::Tensor& input) const;  // through all layers, from first to last
  std::vector<Unit> units() const;                    // of the layers, in their order
  std::vector<NamedTensor> leaves() const;            // of the units, in their order
};

inline const VocabParts& vocab_parts_of(const Model& model) {
  return model.parts;
}

// Marks the layer's backward in a trace: it begins when the gradient of its output is there, and
// ends when the next mark begins.
void mark_backward(const at::Tensor& output, const Layer& layer);

// Called with each unit as soon as its tensors hold their initial values, before the next unit is
// created. A callback that keeps the values elsewhere (FlatModel::add, ZeRO-3) frees the tensors'
// own memory there, so that the model never exists twice.
using OnUnit = std::function<void(const Unit& unit)>;

// Creates a new model in each call. On the meta device the model has only names and shapes. Theory
// needs no model for these (unit_shapes.hpp).
using ModelBuilder = std::function<Model(const OnUnit& on_unit, at::Device device)>;

// The number of elements in all tensors. A tied weight counts once; padding does not count.
std::int64_t count_parameters(const Model& model);

}  // namespace ladder
