// The shape of a model, of any family.
#pragma once

#include <cstdint>
#include <optional>

#include "common/core/precision.hpp"
#include "common/model/products.hpp"

namespace ladder {

enum class ModelFamily {
  kGpt2,   // LayerNorm, learned positions, tanh GELU, biases
  kLlama,  // RMSNorm, rotary positions, SwiGLU, grouped-query attention, no biases
};

struct ModelOptions {
  ModelFamily family = ModelFamily::kGpt2;
  std::int64_t vocab_size = 258;
  std::int64_t context = 128;
  std::int64_t layers = 4;  // blocks
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  // of keys and values, each read by heads / kv_heads; 0: as many
  std::int64_t channels = 128;
  std::int64_t mlp_channels = 0;          // inside the MLP; 0: as many as the family has
  bool tie_embeddings = true;             // the head's weight is the token embedding
  double rope_theta = 10000;              // of rotary positions
  double norm_eps = 1e-5;                 // added to a norm's variance
  Products products = faster_products();  // of all linear layers and the head
  Precision precision = {};               // of the parameters and their .grad
};

// The models that --model knows by name: a family, or a family with a known shape.

enum class NamedModel { kGpt2, kLlama, kSmolLm2_135M, kSmolLm2_360M };

ModelFamily family_of(NamedModel model);
NamedModel named_model(ModelFamily family);  // the family without a shape

// The named model's shape, all but `context`; nothing for a family without one. SmolLM2: Allal et
// al., arXiv 2502.02737, and the models' config.json.
std::optional<ModelOptions> shape_of(NamedModel model);

}  // namespace ladder
