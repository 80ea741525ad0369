// The shape of a model, of any family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/precision.hpp"
#include "common/model/products.hpp"

namespace ladder {

enum class ModelFamily {
  kGpt2,     // LayerNorm, learned positions, GELU, biases
  kLlama,    // RMSNorm, rotary positions, SwiGLU, grouped-query attention, no biases
  kQwen2,    // the same, with biases of queries, keys and values
  kQwen3,    // the same as Llama, with an RMSNorm of each head's query and key
  kMistral,  // the same as Llama
  kSmolLm3,  // the same as Llama, with layers that have no positions
  kOlmo2,    // the same as Llama, with norms after attention and MLP, and of queries and keys
  kNumFamilies
};

// What GPT-2's MLP has between its products.
enum class GeluForm { kTanh, kExact };

inline const char* gelu_name(GeluForm form) {
  return form == GeluForm::kExact ? "exact" : "tanh";
}

// What backward computes again, instead of keeping it from forward on.
enum class Recompute {
  kNone,
  kCheap,   // norms and activation functions of blocks (recipes.hpp)
  kBlocks,  // each block, from its input (recompute.hpp)
};

struct ModelOptions {
  ModelFamily family = ModelFamily::kGpt2;
  std::int64_t vocab_size = 258;
  std::int64_t context = 128;
  std::int64_t layers = 4;  // blocks
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;       // of keys and values, each read by heads / kv_heads; 0: as many
  std::int64_t head_channels = 0;  // of a head, d; 0: channels / heads
  std::int64_t channels = 128;
  std::int64_t mlp_channels = 0;      // inside the MLP; 0: as many as the family has
  bool tie_embeddings = true;         // the head's weight is the token embedding
  double rope_theta = 10000;          // of rotary positions
  std::string rope_scaling = "none";  // of their speeds (rope_scaling.hpp)
  std::int64_t no_rope_interval = 0;  // of every so many layers, the last has no positions; 0: none
  double norm_eps = 1e-5;             // added to a norm's variance
  GeluForm gelu = GeluForm::kTanh;    // of GPT-2's MLP
  Products products = faster_products();  // of all linear layers and the head
  Precision precision = {};               // of the parameters and their .grad
  Recompute recompute = Recompute::kNone;
  std::int64_t product_parts = 1;  // into which layers are cut (parts.hpp)
};

inline std::int64_t head_channels_of(const ModelOptions& options) {
  return options.head_channels != 0 ? options.head_channels : options.channels / options.heads;
}
// Of all heads' queries, side by side: H·d.
inline std::int64_t query_channels_of(const ModelOptions& options) {
  return options.heads * head_channels_of(options);
}

// Whether backward computes this layer of a model's list again: 0 is the embedding, 1 … L are blocks.
inline bool is_recomputed(const ModelOptions& options, std::int64_t layer) {
  return options.recompute == Recompute::kBlocks && layer > 0 && layer <= options.layers;
}

// A model that --model knows by name: a family, or one of a family with a known shape.
struct NamedModel {
  std::string name;
  ModelFamily family;
  std::optional<ModelOptions> shape = {};  // all but `context`
};

// All of them: first the families, then their models.
const std::vector<NamedModel>& named_models();
// Throws UsageError if no model has this name.
const NamedModel& named_model(const std::string& name);

}  // namespace ladder
