// The model that every step trains: a GPT-2 (Radford et al. 2019) without dropout.
//
// Pre-norm blocks, tanh GELU, learned positions; weights start at N(0, 0.02), the projections back
// into the residual stream at N(0, 0.02/√(2L)), biases at 0, LayerNorm at 1 and 0. Every tensor's
// start depends on (seed, its name) alone, so ranks that hold different parts of a model agree on
// the whole.
//
// The model knows nothing of ranks. Whoever wants to cut it uses one of two seams: units() names
// its parameters in the order of the forward pass, blocks() is a plain list whose members can be
// run one by one. Shapes: B batch, T tokens (≤ context), C channels, V vocabulary, L layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "common/core/unit.hpp"
#include "common/model/layers.hpp"

namespace ladder {

struct GptOptions {
  std::int64_t vocab_size = 258;
  std::int64_t context = 128;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t channels = 128;
  bool tie_embeddings = true;             // the head's weight is the token embedding
  Products products = Products::kOneDnn;  // of all linear layers and the head
};

struct Embedding {
  at::Tensor wte;                                         // [V, C] of tokens
  at::Tensor wpe;                                         // [context, C] of positions
  at::Tensor operator()(const at::Tensor& tokens) const;  // [B, T] int64 -> [B, T, C]
  Unit unit() const;
};

struct Block {
  std::int64_t index = 0;
  LayerNorm ln_1;
  Attention attn;
  LayerNorm ln_2;
  Linear c_fc;                                       // [C] -> [4C]
  Linear c_proj;                                     // [4C] -> [C]
  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, C] -> [B, T, C]
  Unit unit() const;
};

struct Head {
  LayerNorm ln_f;
  at::Tensor weight;  // [V, C]; the embedding's own tensor if tied
  bool is_tied = true;
  Products products = Products::kOneDnn;
  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, C] -> logits [B, T, V]
  Unit unit() const;  // a tied weight belongs to the embedding's unit alone
};

using OnUnit = std::function<void(const Unit& unit)>;

class Gpt {
 public:
  // Makes unit after unit and calls `on_unit` with each one as soon as its tensors hold their initial
  // values, before the next unit is made. A caller that keeps the values elsewhere (FlatModel::add,
  // ZeRO-3) takes the tensors' own memory away there, so no second copy of the model ever exists.
  Gpt(const GptOptions& options, std::uint64_t seed, const OnUnit& on_unit = {},
      at::Device device = at::kCPU);
  // On the meta device a model has names and shapes only: for plans, theory and --dry-run.
  Gpt(const GptOptions& options, std::uint64_t seed, at::Device device)
      : Gpt(options, seed, /*on_unit=*/{}, device) {}

  at::Tensor forward(const at::Tensor& tokens) const;  // [B, T] int64 -> logits [B, T, V]

  // The cross-entropy in nats, summed over all targets but those of -100 (padding); 0 if none are
  // left.
  at::Tensor loss_sum(const at::Tensor& tokens,
                      const at::Tensor& targets) const;  // [B, T], [B, T] -> []

  const Embedding& embedding() const { return embedding_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const Head& head() const { return head_; }
  const GptOptions& options() const { return options_; }
  std::vector<Unit> units() const;  // embedding, block0 …, head

 private:
  GptOptions options_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Head head_;
};

// Sum over targets of -log softmax(logits)[target]: logits [..., V], targets [...] int64 -> [].
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

// A tied weight once, without any padding.
std::int64_t count_parameters(const std::vector<Unit>& units);

// Bytes of fp32 activations that the loss of num_rows sequences of `context` tokens holds for its
// backward. While backward runs it needs more, for the gradients on their way.
std::int64_t saved_activation_bytes(const GptOptions& options, std::int64_t num_rows);

// Throws UsageError naming the option for a shape that no model has.
void validate(const GptOptions& options);

}  // namespace ladder
