// Recomputing: a layer keeps its input, and computes the rest again when backward needs it.
//
// A layer's backward needs most of what its forward has computed: each product its input, GELU its
// input, attention queries, keys and values. Autograd keeps it all, of every layer, until backward
// comes by. That is the largest part of a training step's memory, and no ZeRO stage cuts it. But a
// layer is a function: the same input gives the same numbers, to the bit.
//
//   forward    computes the layer without a graph, and keeps its input
//   backward   computes the layer once more, with a graph; goes backward through that graph; drops it
//
// Of L layers that keep S bytes each and have inputs of I bytes, L · I + S are in memory at most,
// instead of L · S. The price is a second forward: a step computes four times what a forward does
// instead of three (Chen et al., arXiv 1604.06174; PyTorch: torch.utils.checkpoint, with
// use_reentrant=True).
//
// The second forward must be the first one again, so it runs as that one did: its linear layers are
// bound to the same queue of weight gradients, and its input needs a gradient only if it did before.
// The backward inside is autograd's: it adds to each parameter's .grad, and calls the hooks of the
// parameters, once. Hooks on the layer's output fire before it. Parameters are read again, so
// whoever takes them away (ZeRO-3) has them back by then. Without gradients (an evaluation, a text
// that is generated) nothing is kept and nothing computed twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/model/model.hpp"

namespace ladder {

// Returns what does what layer.forward does, and keeps for backward only the input. `layer` must
// compute the same in every call: nothing random, nothing that it counts. Its unit must list all
// parameters that it reads.
//
// Backward: once for each forward, with retain_graph more often. A gradient of the gradient is
//           refused with a CheckError. If the graph is gone, autograd refuses, as ever.
// Lifetime: the queue of weight gradients and the trace that were current in forward outlive its
//           backward.
std::function<at::Tensor(const at::Tensor& input)> recomputed(const Layer& layer);

// ---- What is cheap to compute ------------------------------------------------------------------
//
// A product keeps its input, for its weight's gradient. Where a norm or an activation function has
// made that input, both ends are kept: the function keeps its own input as well. It is cheap to call
// again, so the product can do that, and keep nothing.

// A tensor, as what it is made from: tensors that somebody keeps anyway.
struct Recipe {
  std::vector<at::Tensor> from;
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;  // the same bits each time
};

// Returns what does what layer.forward does, in whose products recipes take the place of inputs.
std::function<at::Tensor(const at::Tensor& input)> with_recipes(const Layer& layer);

// For functions that are cheap to call: notes how they have made this output, if a layer with
// recipes is computing and there is a graph. Returns the output.
at::Tensor noted(const at::Tensor& output, const Recipe& recipe);
// For products: the recipe of this very tensor, or null. It is valid until the layer's forward ends.
const Recipe* recipe_of(const at::Tensor& output);

}  // namespace ladder
