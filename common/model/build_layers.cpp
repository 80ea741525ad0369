#include "common/model/build_layers.hpp"

#include <ATen/ops/cat.h>

#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/seed.hpp"
#include "common/model/family_layers.hpp"
#include "common/model/modules.hpp"
#include "common/model/recipes.hpp"
#include "common/model/recompute.hpp"
#include "common/model/unit_shapes.hpp"

namespace ladder {
namespace {

// `weights` are the head's own, or those of the token embedding, if it is shared.
FamilyLayers::Forward head_forward(const FamilyLayers::Forward& norm,
                                   const std::vector<at::Tensor>& weights, bool is_shared,
                                   const Parts& parts, Products products) {
  return [=](const at::Tensor& x) {
    std::vector<at::Tensor> logits(weights.size());
    const auto part = [&](int i, const at::Tensor& input) {
      const auto own = static_cast<std::size_t>(i);
      logits[own] = project(input, weights[own], products, is_shared);
      return i;
    };
    const auto last = [](int /*before*/, int after) { return after; };
    over_parts(0, parts.own, to_parts(norm(x), parts), part, last);
    return logits.size() == 1 ? logits[0] : at::cat(logits, /*dim=*/-1);  // [B, T, V]
  };
}

}  // namespace

Model build_layers(const ModelOptions& options, std::uint64_t seed,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit,
                   at::Device device) {
  return build_layers(options, seed, all_parts(static_cast<int>(options.product_parts)), layers,
                      on_unit, device);
}

Model build_layers(const ModelOptions& options, std::uint64_t seed, const Parts& parts,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit,
                   at::Device device) {
  const std::unique_ptr<Family> family = family_of(options);
  check(parts.total == options.product_parts, "build_layers: parts of ", parts.total,
        ", but --product-parts is ", options.product_parts);
  const std::vector<LayerShape> shapes = layer_shapes(*family, layers);
  const std::unique_ptr<FamilyLayers> make = layers_of(*family);
  const MemoryScope scope(MemoryCategory::kParameters);
  const std::uint64_t model_seed = derive_seed(seed, "model");
  const std::int64_t head = options.layers + 1;
  Model model = {{}, {parts, options.vocab_size}};
  std::vector<at::Tensor> embedding;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerTensors tensors(shapes[i], family->options(), parts, model_seed, device);
    Layer& layer = model.layers.emplace_back(Layer{tensors.unit(), {}});
    const std::int64_t index = layers[i];
    if (index == 0) {
      layer.forward = make->embedding(tensors);
      embedding = tensors.own(family->traits().embedding_name());
    } else if (index < head) {
      layer.forward = make->block(tensors, index - 1);
    } else {
      const bool is_shared = shapes[i].is_tied_head;
      if (is_shared) layer.reads = 0;
      layer.forward = head_forward(make->final_norm(tensors),
                                   is_shared ? embedding : tensors.own(family->head().name),
                                   is_shared, parts, family->options().products);
    }
    if (is_recomputed(options, index)) {
      layer.forward = recomputed(layer);
    } else if (options.recompute == Recompute::kCheap && index > 0 && index < head) {
      layer.forward = with_recipes(layer);
    }
    if (on_unit) on_unit(layer.unit);
  }
  return model;
}

Model build_layers(const ModelOptions& options, std::uint64_t seed, const OnUnit& on_unit,
                   at::Device device) {
  return build_layers(options, seed, all_layers(options), on_unit, device);
}

ModelBuilder layer_builder(const ModelOptions& options, std::uint64_t seed) {
  return [=](const OnUnit& on_unit, at::Device device) {
    return build_layers(options, seed, on_unit, device);
  };
}

}  // namespace ladder
