// A model is a list of layers, and everything outside this folder sees it as nothing else.
//
// A layer is its unit (the tensors that it owns), what it computes from the output of the layer
// before it, and which other layer's unit it reads (a tied head reads the token embedding). Whoever
// cuts a model walks this list: ZeRO-3 makes one layer whole after the other, a pipeline stage runs
// a part of the list, built without the rest. A second model family is a second builder (gpt.hpp
// holds the first). No layer knows about ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/core/unit.hpp"

namespace ladder {

struct Layer {
  Unit unit;
  // The first layer of a model takes tokens [B, T] int64, the last one returns logits [B, T, V];
  // between layers travel activations [B, T, C].
  std::function<at::Tensor(const at::Tensor& input)> forward;
  std::optional<std::size_t> reads = {};  // the index of another layer whose unit it needs as well
};

struct Model {
  std::vector<Layer> layers;

  at::Tensor forward(const at::Tensor& input) const;  // through all layers, from first to last
  std::vector<Unit> units() const;                    // of the layers, in their order
};

// Called with each unit as soon as its tensors hold their initial values, before the next unit is
// made. A caller that keeps the values elsewhere (FlatModel::add, ZeRO-3) takes the tensors' own
// memory away there, so that no second copy of the model ever exists.
using OnUnit = std::function<void(const Unit& unit)>;

// Makes one model, as often as it is called. On the meta device the model has names and shapes only:
// enough for plans, theory and --dry-run.
using ModelBuilder = std::function<Model(const OnUnit& on_unit, at::Device device)>;

// The number of elements in all tensors: a tied weight counts once, padding not at all.
std::int64_t count_parameters(const std::vector<Unit>& units);

}  // namespace ladder
