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
// bound to the same queue of weight gradients, it is a span "recompute" of the same trace, and its
// input needs a gradient only if it did before. The backward inside is autograd's: it adds to each
// parameter's .grad, and calls the hooks of the parameters, once. Hooks on the layer's output fire
// before it. Parameters are read again, so whoever takes them away (ZeRO-3) has them back by then.
// Without gradients (an evaluation, a text that is generated) nothing is kept and nothing computed
// twice.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/model/model.hpp"

namespace ladder {

using LayerForward = decltype(Layer::forward);

// Returns what does what layer.forward does, and keeps for backward only the input. `layer` must
// compute the same in every call: nothing random, nothing that it counts. Its unit must list all
// parameters that it reads.
//
// Backward: once for each forward, with retain_graph more often. A gradient of the gradient is
//           refused with a CheckError that names --recompute none. If the graph is gone, or the
//           input was changed in place, autograd refuses, as ever.
// Lifetime: the queue of weight gradients and the trace that were current in forward outlive its
//           backward.
LayerForward recomputed(const Layer& layer);

}  // namespace ladder
