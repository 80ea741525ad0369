#include "common/model/family_layers.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/modules.hpp"
#include "common/model/pieces.hpp"

namespace ladder {

// Each in a file of its own.
std::unique_ptr<FamilyLayers> gpt2_layers(const Family& family);
std::unique_ptr<FamilyLayers> llama_layers(const Family& family);

namespace {

at::Tensor initial(const ParameterShape& parameter, std::uint64_t seed, at::Device device) {
  at::Tensor tensor =
      at::empty(parameter.shape, at::TensorOptions().dtype(at::kFloat).device(device));
  if (parameter.std == 0) return tensor.fill_(parameter.value);
  if (tensor.is_meta()) return tensor;
  return tensor.normal_(
      0.0, parameter.std,
      at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed, parameter.name)));
}

// Rounds initial values, which are the same in every precision.
at::Tensor leaf_of(const at::Tensor& values, const Precision& precision) {
  at::Tensor leaf = values.to(to_torch(precision.params)).set_requires_grad(true);
  if (precision.grads != precision.params) leaf.set_grad_dtype(to_torch(precision.grads));
  return leaf;
}

}  // namespace

LayerTensors::LayerTensors(const LayerShape& shape, const ModelOptions& options, const Parts& parts,
                           std::uint64_t seed, at::Device device)
    : parts_(parts) {
  std::map<std::string, at::Tensor> leaves;
  for (const ParameterShape& parameter : shape.parameters) {
    const at::Tensor whole = initial(parameter, seed, device);
    for (const auto& [name, piece, is_trainable, part] : shapes_of(parameter, parts)) {
      leaves[name] = leaf_of(part ? piece_of(*part, whole) : whole, options.precision);
      own_[parameter.name].push_back(leaves[name]);
    }
  }
  unit_.name = shape.name;
  for (const TensorShape& tensor : unit_shape(shape, parts).tensors) {
    unit_.tensors.push_back({tensor.name, leaves.at(tensor.name)});
    if (tensor.part) unit_.parts[tensor.name] = *tensor.part;
  }
}

TokenEmbedding token_embedding(const Family& family, const LayerTensors& tensors) {
  return {tensors.own(family.traits().embedding_name()),
          {tensors.parts(), family.options().vocab_size}};
}

at::Tensor TokenEmbedding::operator()(const at::Tensor& tokens) const {
  if (parts.total == 1) return look_up(weights[0], tokens);
  const auto part = [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    const std::int64_t num_tokens = weights[index].size(0);
    const at::Tensor own = tokens - parts.begin(parts.first + i);
    const at::Tensor is_other = own.lt(0).logical_or_(own.ge(num_tokens)).unsqueeze(-1);
    return look_up(weights[index], own.clamp(0, num_tokens - 1)).masked_fill(is_other, 0);
  };
  return from_parts(tree_sum(0, parts.own, part, std::plus<at::Tensor>()), parts);
}

std::unique_ptr<FamilyLayers> layers_of(const Family& family) {
  switch (family.options().family) {
    case ModelFamily::kGpt2:
      return gpt2_layers(family);
    case ModelFamily::kLlama:
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
    case ModelFamily::kMistral:
    case ModelFamily::kSmolLm3:
    case ModelFamily::kOlmo2:
      return llama_layers(family);
    case ModelFamily::kNumFamilies:
      break;
  }
  throw CheckError("there is no such family of models");
}

}  // namespace ladder
