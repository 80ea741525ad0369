// A microbatch's forward and backward as two CUDA graphs.
//
// The host launches a GPU's kernels one by one, and each launch passes through autograd and
// libtorch. Where kernels are short, the GPU waits for the host. A CUDA graph is a recording of
// launches: it is captured once, and from then on a single call launches all of them again.
//
// A graph fixes addresses and sizes, but not what is stored there. Parameters and gradients never
// move (flat_model.hpp); tokens, targets, the loss and the gradient that enters its backward are
// copied to and from buffers of their own. So the loops stay as they are:
//
//   microbatches 1 to 3   run as usual, on a stream of their own: libraries set themselves up
//   microbatch 4          captures both graphs, which computes nothing yet, and launches them
//   all further ones      launch one graph in forward, and the other in backward
//
// A microbatch of another shape (the last of an epoch may have fewer rows), and whatever runs
// without gradients (evaluation), runs as usual. If a larger one comes before the capture, counting
// begins again with that. PyTorch: make_graphed_callables.
//
// Bits:     those of the usual run: the same kernels add up in the same order.
// Hooks:    none would be called: they run on the host, and a graph repeats only what the GPU does.
//           So this is not for steps that communicate while backward is running.
// Memory:   the buffers (category: other, "CUDA graphs" and "input of CUDA graphs"). Besides, the
//           graphs keep room for the activations of one microbatch as long as they live. The ledger
//           counts it during the capture, and as free afterwards.
#pragma once

#include "common/optim/flat_model.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {

// Returns a function that does what `loss_sum` does, by graphs.
//
// loss_sum: of a microbatch it reads the tokens and the targets, and nothing else: a graph would
//           repeat other numbers as they were at the capture. Returns [] fp32.
// Backward: of each forward exactly once, before the next forward.
// Lifetime: `grads`, which are the gradients of loss_sum's model, outlive the result.
// Throws:   CheckError naming the parameter, if one has a hook, or if an autograd graph from before
//           the capture is still alive; for a forward whose predecessor had no backward, and for a
//           second backward; in a build without CUDA.
LossSum captured(LossSum loss_sum, const FlatGradients& grads);

}  // namespace ladder
