// What a model costs, from its shape alone: activations and arithmetic of its layers.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/device.hpp"
#include "common/model/model_options.hpp"

namespace ladder {

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
                                                Device device, int num_threads, int num_owners = 1,
                                                bool cuts_rows = false);

// The most that neighboring layers hold while a microbatch goes forward and backward through them.
double most_activation_bytes(const std::vector<LayerActivations>& layers);

// The floating-point operations of each layer's forward per token, the multiplications of its
// matrices only; attention over the whole context, the causal half counted in full. A lookup counts
// as 0.
std::vector<std::int64_t> forward_flops(const ModelOptions& options);
// The same of each layer's backward, which multiplies each matrix twice, and once more if it computes
// the layer again.
std::vector<std::int64_t> backward_flops(const ModelOptions& options);

}  // namespace ladder
