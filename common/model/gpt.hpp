// Builds the model that every step trains: a GPT-2 (Radford et al. 2019) without dropout.
//
// Pre-norm blocks, tanh GELU, learned positions; weights start at N(0, 0.02), the projections back
// into the residual stream at N(0, 0.02/√(2L)), biases at 0, LayerNorm at 1 and 0. Every tensor's
// start depends on (seed, its name) alone, so ranks that hold different parts of a model agree on
// the whole. Shapes: B batch, T tokens (≤ context), C channels, V vocabulary, L blocks.
#pragma once

#include <cstdint>

#include "common/model/model.hpp"
#include "common/model/modules.hpp"

namespace ladder {

struct GptOptions {
  std::int64_t vocab_size = 258;
  std::int64_t context = 128;
  std::int64_t layers = 4;  // blocks
  std::int64_t heads = 4;
  std::int64_t channels = 128;
  bool tie_embeddings = true;             // the head's weight is the token embedding
  Products products = Products::kOneDnn;  // of all linear layers and the head
};

// A part of the list that a GPT is: layer 0 is the embedding, 1 … L are the blocks, L + 1 is the head.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // the first one that is left out
};
LayerRange all_layers(const GptOptions& options);

// The layers "embedding", "block0", …, "head". A tied head reads layer 0.
// Throws UsageError naming the option, as validate() does.
Model build_gpt(const GptOptions& options, std::uint64_t seed, const OnUnit& on_unit = {},
                at::Device device = at::kCPU);

// These layers alone; the others are never made. A tied head without its embedding has a copy of the
// token embedding in its own unit, which starts equal: the caller keeps the two equal.
// Throws CheckError for a range that is empty or reaches beyond the model.
Model build_gpt(const GptOptions& options, std::uint64_t seed, const LayerRange& range,
                const OnUnit& on_unit = {}, at::Device device = at::kCPU);

// build_gpt() of all layers, for whoever decides when, and on which device, the model is made.
ModelBuilder gpt_builder(const GptOptions& options, std::uint64_t seed);

// Bytes of fp32 activations that the summed loss of num_rows sequences of `context` tokens keeps for
// its backward. While backward runs it needs more, for the activation gradients.
std::int64_t saved_activation_bytes(const GptOptions& options, std::int64_t num_rows);

// Throws UsageError naming the option for a shape that no model has.
void validate(const GptOptions& options);

}  // namespace ladder
