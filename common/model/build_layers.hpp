// Builds the model that every step trains: a list of layers, of any family (family.hpp).
//
// Weights start at N(0, 0.02), projections back into the residual stream at N(0, 0.02/√(2L)),
// biases at 0, norms at 1. A tensor's initial values depend only on the seed and its name, so ranks
// with different parts of a model agree on the whole. There is no dropout. Shapes: B batch, T
// tokens (≤ context), C channels, V vocabulary, L blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/model_options.hpp"
#include "common/model/parts.hpp"

namespace ladder {

// Builds the layers "embedding", "block0", …, "head". A tied head reads layer 0.
// Throws UsageError naming the option, as validate() does.
Model build_layers(const ModelOptions& options, std::uint64_t seed, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// Builds only these layers of the list, in ascending order: 0 is the embedding, 1 … L are the
// blocks, L + 1 is the head. The others are never created. If a tied head is built without the
// embedding, the token embedding is also the last tensor of its own unit, a copy with the same
// initial values, and the caller must keep the two equal. Throws CheckError for no layers, an order
// that does not ascend, or a layer that the model does not have.
Model build_layers(const ModelOptions& options, std::uint64_t seed,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// The same with some of options.product_parts only (parts.hpp). A unit has what all parts use, and
// these parts; the logits are those of these parts, side by side.
Model build_layers(const ModelOptions& options, std::uint64_t seed, const Parts& parts,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// Returns build_layers() of all layers as a function of the device, to be called later.
ModelBuilder layer_builder(const ModelOptions& options, std::uint64_t seed);

// The bytes of activations that forward, with the summed loss, saves for backward, for num_rows
// rows of `context` tokens on this machine's CPU, exactly. While the loss is computed, a second
// number for each logit comes on top (loss_bytes()).
std::int64_t saved_activation_bytes(const ModelOptions& options, std::int64_t num_rows);
std::int64_t loss_bytes(const ModelOptions& options, std::int64_t num_rows);

// What a microbatch holds in one layer, in bytes, on a GPU or on any CPU: a bound that does not
// depend on this machine. On CPUs it is what oneDNN and ATen were seen to take: in fp32 within a
// few percent, in 16 bits up to twice as much, for CPUs without such instructions.
struct LayerActivations {
  double saved = 0;  // by its forward, for its backward
  // On top of that, from where its backward has computed it again until its end, the halves for
  // weights included: these keep the gradients that products have received.
  double recomputed = 0;
  double working = 0;  // on top, while it computes: gradients, one of a weight among them, copies
};

// The activations of each layer: the embedding, the blocks, and the head with the summed loss. Of
// what is cut into parts, those of one of `num_owners`, which have as many each; and if these cut
// rows (parts.hpp), as many of what is between layers.
std::vector<LayerActivations> layer_activations(const ModelOptions& options, double num_rows,
                                                at::Device device, int num_threads,
                                                int num_owners = 1, bool cuts_rows = false);

// The most that neighboring layers hold while a microbatch goes forward and backward through them.
double most_activation_bytes(const std::vector<LayerActivations>& layers);

// The floating-point operations of each layer's forward per token, the multiplications of its
// matrices only; attention over the whole context, the causal half counted in full. A lookup counts
// as 0.
std::vector<std::int64_t> forward_flops(const ModelOptions& options);
// The same of each layer's backward, which multiplies each matrix twice, and once more if it computes
// the layer again.
std::vector<std::int64_t> backward_flops(const ModelOptions& options);
// What forward and backward of all layers take, without what is computed again (PaLM, arXiv
// 2204.02311, appendix B).
std::int64_t training_flops(const ModelOptions& options);

// Throws UsageError naming the option if the shape is impossible.
void validate(const ModelOptions& options);

// The shape, with its family's numbers where kv_heads or mlp_channels is 0. Throws UsageError as
// validate() does.
ModelOptions completed(const ModelOptions& options);

}  // namespace ladder
