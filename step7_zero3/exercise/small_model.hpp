// For the checks: a model of five layers that says when each of them needs its unit.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "common/core/check.hpp"
#include "common/model/model.hpp"

namespace ladder::step7 {

enum class Phase { kForward, kBackward };

constexpr int kNumLayers = 5;
constexpr std::size_t kLast = kNumLayers - 1;  // the head; layer 0 is the embedding

// Units of different lengths. If `is_tied`, the last layer also reads unit 0; if `has_middle_reader`,
// layer 2 reads unit 1.
inline ModelBuilder small_model(bool is_tied, std::function<void(Phase, std::size_t layer)> on_turn,
                                bool has_middle_reader = false) {
  return [=](const OnUnit& on_unit, at::Device device) {
    Model model;
    for (std::size_t layer = 0; layer <= kLast; ++layer) {
      const auto numel = static_cast<std::int64_t>(10'000 * (layer + 1));
      const at::Tensor weight = at::ones({numel}, device).set_requires_grad(true);
      const std::string name = concat("unit", layer);
      const auto forward = [=](const at::Tensor& input) {
        on_turn(Phase::kForward, layer);
        const at::Tensor product = input * weight.mean();
        if (product.requires_grad())
          product.register_hook(
              [=](const at::Tensor& /*gradient*/) { on_turn(Phase::kBackward, layer); });
        return product * 1;  // the gradient arrives here before the layer's backward begins
      };
      model.layers.push_back({{name, {{name + ".weight", weight}}}, forward});
      if (on_unit) on_unit(model.layers.back().unit);
    }
    if (is_tied) model.layers[kLast].reads = 0;
    if (has_middle_reader) model.layers[2].reads = 1;
    return model;
  };
}

}  // namespace ladder::step7
