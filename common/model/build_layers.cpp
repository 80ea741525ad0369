#include "common/model/build_layers.hpp"

#include <numeric>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/seed.hpp"
#include "common/model/family.hpp"
#include "common/model/modules.hpp"

namespace ladder {
namespace {

std::vector<std::int64_t> weight_shape(const ModelOptions& options) {
  return {options.vocab_size, options.channels};
}

Layer embedding_layer(const Family& family, const ParameterMaker& make) {
  const at::Tensor weight = make.normal(family.embedding_name(), weight_shape(family.options()));
  Layer layer = family.embedding(make, weight);
  layer.unit.name = "embedding";
  layer.unit.tensors.insert(layer.unit.tensors.begin(), {family.embedding_name(), weight});
  return layer;
}

Layer block_layer(const Family& family, const ParameterMaker& make, std::int64_t index) {
  Layer layer = family.block(make, index);
  layer.unit.name = concat("block", index);
  return layer;
}

// `embedding` is the token embedding, undefined if this part of the model does not include it.
Layer head_layer(const Family& family, const ParameterMaker& make, const at::Tensor& embedding) {
  const ModelOptions& options = family.options();
  const bool is_shared = options.tie_embeddings && embedding.defined();
  const std::string name = options.tie_embeddings ? family.embedding_name() : "lm_head.weight";
  const at::Tensor weight = is_shared ? embedding : make.normal(name, weight_shape(options));
  const Layer norm = family.final_norm(make);
  Layer layer;
  layer.unit = {"head", norm.unit.tensors};
  layer.forward = [=, products = options.products](const at::Tensor& x) {  // -> logits [B, T, V]
    return project(norm.forward(x), weight, products);
  };
  if (is_shared) {
    layer.reads = 0;
  } else {
    layer.unit.tensors.push_back({name, weight});
  }
  return layer;
}

}  // namespace

Model build_layers(const ModelOptions& options, std::uint64_t seed,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit,
                   at::Device device) {
  const std::unique_ptr<Family> family = family_of(options);
  const std::int64_t head = options.layers + 1;
  check(!layers.empty(), "a part of a model needs at least one layer");
  std::int64_t previous = -1;
  for (const std::int64_t layer : layers) {
    check(previous < layer && layer <= head, "layer ", layer, " after layer ", previous,
          ": this model has the layers 0 to ", head, ", in ascending order");
    previous = layer;
  }
  const MemoryScope scope(MemoryCategory::kParameters);
  const ParameterMaker make(derive_seed(seed, "model"), device, family->options());
  Model model;
  at::Tensor embedding;
  for (const std::int64_t layer : layers) {
    if (layer == 0) {
      model.layers.push_back(embedding_layer(*family, make));
      embedding = model.layers[0].unit.tensors[0].tensor;
    } else if (layer < head) {
      model.layers.push_back(block_layer(*family, make, layer - 1));
    } else {
      model.layers.push_back(head_layer(*family, make, embedding));
    }
    if (on_unit) on_unit(model.layers.back().unit);
  }
  return model;
}

Model build_layers(const ModelOptions& options, std::uint64_t seed, const OnUnit& on_unit,
                   at::Device device) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(options.layers + 2));
  std::iota(all.begin(), all.end(), 0);
  return build_layers(options, seed, all, on_unit, device);
}

ModelBuilder layer_builder(const ModelOptions& options, std::uint64_t seed) {
  return [=](const OnUnit& on_unit, at::Device device) {
    return build_layers(options, seed, on_unit, device);
  };
}

std::int64_t saved_activation_bytes(const ModelOptions& options, std::int64_t num_rows) {
  const std::unique_ptr<Family> family = family_of(options);
  // The head's product saves its input. The loss is computed in fp32, and log_softmax saves its
  // output.
  const std::int64_t head = family->saved_bytes_of_final_norm() +
                            options.precision.param_bytes() * options.channels +
                            4 * options.vocab_size;
  return num_rows * options.context * (options.layers * family->saved_bytes_of_block() + head);
}

std::vector<std::int64_t> forward_flops(const ModelOptions& options) {
  std::vector<std::int64_t> flops(static_cast<std::size_t>(options.layers + 2),
                                  family_of(options)->flops_of_block());
  flops.front() = 0;
  flops.back() = 2 * options.channels * options.vocab_size;
  return flops;
}

void validate(const ModelOptions& options) {
  family_of(options);
}

ModelOptions completed(const ModelOptions& options) {
  return family_of(options)->options();
}

std::unique_ptr<Family> family_of(const ModelOptions& options) {
  const auto check_positive = [](const char* option, std::int64_t value) {
    check_usage(value > 0, option, " is ", value, ", it must be at least 1");
  };
  check_positive("--vocab-size", options.vocab_size);
  check_positive("--context", options.context);
  check_positive("--layers", options.layers);
  check_positive("--heads", options.heads);
  check_positive("--channels", options.channels);
  check_usage(options.channels % options.heads == 0, "--channels ", options.channels,
              " is not a multiple of --heads ", options.heads);
  switch (options.family) {
    case ModelFamily::kGpt2:
      return gpt2(options);
    case ModelFamily::kLlama:
      return llama(options);
  }
  throw UsageError("there is no such family of models");
}

}  // namespace ladder
