// What is particular to a family of models: its layers, and what they cost.
//
// build_layers.cpp has what all families share: the walk over the list of layers, the token
// embedding, and the head's weight, tied or not. A new family is a class like those of gpt2.cpp and
// llama.cpp, a value of ModelFamily, and its line in family_of().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/model/attention.hpp"
#include "common/model/model.hpp"
#include "common/model/model_options.hpp"

namespace ladder {

inline constexpr double kInitStd = 0.02;

// Creates the parameters of one model, each from its own random stream, and lists them in a unit.
class ParameterMaker {
 public:
  // Lifetime: `options` outlives this.
  ParameterMaker(std::uint64_t seed, at::Device device, const ModelOptions& options)
      : seed_(seed), device_(device), options_(options) {}

  // N(0, std), from the stream of this name.
  at::Tensor normal(Unit& unit, const std::string& name, at::IntArrayRef shape,
                    double std = kInitStd) const;
  at::Tensor constant(Unit& unit, const std::string& name, std::int64_t numel, double value) const;

 private:
  at::Tensor empty(at::IntArrayRef shape) const;
  at::Tensor add(Unit& unit, const std::string& name, const at::Tensor& values) const;

  std::uint64_t seed_;
  at::Device device_;
  const ModelOptions& options_;
};

// The standard deviation of the projections back into the residual stream, which add up over 2L of
// them.
double residual_std(const ModelOptions& options);

struct FamilyTraits {
  const char* embedding_name;    // of the token embedding's tensor
  std::int64_t norm_statistics;  // fp32 numbers that a norm saves of each token, beside its input
  std::int64_t mlp_matrices;     // of [C, M] or [M, C]
  bool has_joint_qkv;            // queries, keys and values are cut from one tensor
};

// Layers that it makes have no names yet. They may share what the object makes for all of them, so
// a model's layers come from one object. Costs are per token.
class Family {
 public:
  virtual ~Family() = default;

  // The options, with the family's numbers where they are 0.
  const ModelOptions& options() const { return options_; }
  const FamilyTraits& traits() const { return traits_; }

  // Maps tokens [B, T] int64 to [B, T, C]. The token embedding [V, C] is the unit's first tensor.
  virtual Layer embedding(const ParameterMaker& make) const = 0;
  virtual Layer block(const ParameterMaker& make, std::int64_t index) const = 0;
  // What stands between the last block and the head's product, from [B, T, C] to [B, T, C].
  virtual Layer final_norm(const ParameterMaker& make) const = 0;

  std::int64_t saved_bytes_of_block(AttentionPath path) const;  // until backward
  std::int64_t saved_bytes_of_norm() const;                     // until backward
  // The most bytes that a block's backward adds to that while it computes: gradients of
  // activations, and what products copy. Without gradients of weights.
  virtual std::int64_t working_bytes_of_block(AttentionPath path) const = 0;
  std::int64_t largest_matrix_of_block() const;  // elements, not per token
  std::int64_t flops_of_block() const;           // of its forward

 protected:
  Family(const ModelOptions& options, const FamilyTraits& traits)
      : options_(options), traits_(traits) {}
  ModelOptions options_;

 private:
  FamilyTraits traits_;
};

// Throw UsageError naming the option if the family does not have such a shape.
std::unique_ptr<Family> gpt2(const ModelOptions& options);
std::unique_ptr<Family> llama(const ModelOptions& options);

// Throws UsageError naming the option if the shape is impossible.
std::unique_ptr<Family> family_of(const ModelOptions& options);

}  // namespace ladder
