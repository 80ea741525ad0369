// The cross-entropy of logits on a GPU: one kernel forward and one backward, which read the logits
// in their own type, compute in fp32 and write their gradient in the logits' type again.
//
//   bytes per logit        fp32    bf16, fp16
//   forward                   4             2   reads it
//   backward                  8             4   reads it, writes its gradient
//   ATen, at least           24            36   widening, log-softmax, their backward, rounding
//
// Saved for backward: the logits themselves, and 8 bytes a row.
//
// Bits: a row's loss and gradient depend on that row alone, not on the number of rows or on where
//       it begins in memory, and are the same in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ladder {

// Sum over targets of -log softmax(logits)[target]; a row whose target is `ignored_target` adds
// nothing and has the gradient 0. logits [..., V] in fp32, bf16 or fp16, targets [...] int64 on the
// same GPU -> [] fp32, differentiable. Only queues work on the current stream.
//
// Throws CheckError for other types and shapes, and in a build without CUDA. A target that is not
// below V stops the process's work on the GPU, as it does in libtorch: only the GPU sees it.
at::Tensor cross_entropy_sum_on_gpu(const at::Tensor& logits, const at::Tensor& targets,
                                    std::int64_t ignored_target);

}  // namespace ladder
