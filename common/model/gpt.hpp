// Builds the model that every step trains: a GPT-2 (Radford et al. 2019) without dropout.
//
// It has pre-norm blocks, tanh GELU and learned positions. Weights start at N(0, 0.02), projections
// back into the residual stream at N(0, 0.02/√(2L)), biases at 0, LayerNorm at 1 and 0. A tensor's
// initial values depend only on the seed and its name, so ranks with different parts of a model
// agree on the whole. Shapes: B batch, T tokens (≤ context), C channels, V vocabulary, L blocks.
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

// A part of a GPT's list of layers: 0 is the embedding, 1 … L are the blocks, L + 1 is the head.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // one past the last
};
LayerRange all_layers(const GptOptions& options);

// Builds the layers "embedding", "block0", …, "head". A tied head reads layer 0.
// Throws UsageError naming the option, as validate() does.
Model build_gpt(const GptOptions& options, std::uint64_t seed, const OnUnit& on_unit = {},
                at::Device device = at::kCPU);

// Builds only these layers; the others are never created. If a tied head is built without the
// embedding, its own unit has a copy of the token embedding with the same initial values, and the
// caller must keep the two equal. Throws CheckError for an empty range or one outside the model.
Model build_gpt(const GptOptions& options, std::uint64_t seed, const LayerRange& range,
                const OnUnit& on_unit = {}, at::Device device = at::kCPU);

// Returns build_gpt() of all layers as a function of the device, to be called later.
ModelBuilder gpt_builder(const GptOptions& options, std::uint64_t seed);

// The bytes of fp32 activations that forward, with the summed loss, saves for backward, for
// num_rows rows of `context` tokens. Backward itself needs more, for the activation gradients.
std::int64_t saved_activation_bytes(const GptOptions& options, std::int64_t num_rows);

// Throws UsageError naming the option if the shape is impossible.
void validate(const GptOptions& options);

}  // namespace ladder
