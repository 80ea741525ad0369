// What is particular to a family of models: its parameters, what its layers cost, and how other
// programs write them down. Nothing here needs a tensor; family_layers.hpp computes with them.
//
// unit_shapes.hpp has what all families share: the walk over the list of layers, the token
// embedding, and the head's weight, tied or not. A new family is a file like gpt2.cpp with a Family
// and its FamilyTraits, or another class in llama_traits.cpp; a value of ModelFamily; its row in
// family.cpp; and its layers, as in gpt2_layers.cpp. If one of them is missing, or a trait, the
// compiler or the linker says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/json.hpp"
#include "common/model/attention_path.hpp"
#include "common/model/model_options.hpp"
#include "common/model/parameter_shape.hpp"

namespace ladder {

// The standard deviation of the projections back into the residual stream, which add up over 2L of
// them.
double residual_std(const ModelOptions& options);

class ConfigReader;
class Family;
struct ModelConfig;                                     // config_reader.hpp
enum class QkNorm { kNone, kOfEachHead, kOfAllHeads };  // of queries, and of keys

// What is known of a family without a shape. A class that lacks one of these does not compile; only
// those at the end may be left out.
class FamilyTraits {
 public:
  virtual ~FamilyTraits() = default;

  virtual const char* name() const = 0;    // of --model, and the "model_type" of a config.json
  virtual const char* prefix() const = 0;  // of all tensors but the head in a Hugging Face folder
  virtual const char* embedding_name() const = 0;  // of the token embedding's tensor
  // Of the tensor of learned positions, which are as many as the context may be long; empty: they
  // are rotary, and have no end.
  virtual const char* positions_name() const = 0;
  virtual bool has_kv_heads() const = 0;             // those may be fewer than the heads
  virtual bool has_joint_qkv() const = 0;            // they are cut from one tensor
  virtual std::int64_t mlp_matrices() const = 0;     // of [C, M] or [M, C]: 2, or 3 with a gate
  virtual std::int64_t norm_statistics() const = 0;  // fp32 numbers that a norm saves of each token

  // Throws UsageError naming the option if the family does not have such a shape.
  virtual std::unique_ptr<Family> make(const ModelOptions& options) const = 0;
  // The shape, but for the family. Throws CheckError for a setting that would make another function
  // of the same weights. What is missing has the value that transformers' class gives it.
  virtual ModelConfig read(ConfigReader& config) const = 0;
  // The settings that read() reads, and those without which transformers would take other values.
  virtual Json write(const ModelOptions& model) const = 0;

  virtual bool has_qkv_bias() const { return false; }  // all of GPT-2's products have one
  virtual QkNorm qk_norm() const { return QkNorm::kNone; }
  virtual bool has_norms_after() const { return false; }  // after attention and MLP, none before
  // Whether heads of all parts share the parameter, so that each part has a gradient of it.
  bool is_shared_by_heads(const std::string& name) const {
    return qk_norm() == QkNorm::kOfEachHead && name.ends_with("_norm.weight");
  }
  virtual std::int64_t no_rope_interval() const { return 0; }  // of ModelOptions, if not given
  // Whether it is no parameter but what a model computes itself, which older files hold as well.
  virtual bool is_buffer(const std::string& /*name*/) const { return false; }
  // Models with a known shape, all but its `context`, by --model's names.
  virtual std::vector<std::pair<std::string, ModelOptions>> models() const { return {}; }
  bool has_rotary_positions() const { return *positions_name() == '\0'; }
};

// What depends on the shape. Costs are per token.
class Family {
 public:
  virtual ~Family() = default;

  // The options, with numbers where kv_heads, head_channels and mlp_channels are 0.
  const ModelOptions& options() const { return options_; }
  const FamilyTraits& traits() const { return traits_; }

  // The parameters of each layer. Those of the embedding begin with the token embedding [V, C].
  virtual ParameterShapes embedding() const { return {token_embedding()}; }
  virtual ParameterShapes block(std::int64_t index) const = 0;
  // Of what is between the last block and the head's product.
  virtual ParameterShapes final_norm() const = 0;
  ParameterShape token_embedding() const;
  ParameterShape head() const;  // its weight [V, C]; if it is tied, the token embedding

  std::int64_t saved_bytes_of_block(AttentionPath path) const;  // until backward
  std::int64_t saved_bytes_of_norm() const;                     // until backward
  // Of the first, what each part of a block uses (parts.hpp).
  std::int64_t saved_bytes_of_all_parts() const;
  // Those of the first that are outputs of norms and of the activation function.
  std::int64_t bytes_of_cheap_outputs() const;
  // The most bytes that a block's backward adds to that while it computes: gradients of
  // activations, and what products copy. Without gradients of weights.
  virtual std::int64_t working_bytes_of_block(AttentionPath path) const = 0;
  std::int64_t largest_matrix_of_block() const;  // elements, not per token
  // Of their forwards; the head's is its product.
  std::int64_t flops_of_block() const;
  std::int64_t flops_of_head() const;

 protected:
  explicit Family(const ModelOptions& options);
  ModelOptions options_;

 private:
  const FamilyTraits& traits_;
};

const FamilyTraits& traits_of(ModelFamily family);  // it lives as long as the program
std::vector<ModelFamily> all_families();

// Throws UsageError naming the option if the shape is impossible.
std::unique_ptr<Family> family_of(const ModelOptions& options);

// Throws UsageError naming the option if the shape is impossible.
void validate(const ModelOptions& options);

// The shape, with its family's numbers where kv_heads or mlp_channels is 0. Throws UsageError as
// validate() does.
ModelOptions completed(const ModelOptions& options);

// What forward and backward of all layers take, without what is computed again (PaLM, arXiv
// 2204.02311, appendix B).
std::int64_t training_flops(const ModelOptions& options);

}  // namespace ladder
