// What the optimizer and the norms do to tensors on a GPU: one kernel each, so that every number
// passes through memory once. All throw CheckError in a build without CUDA.
//
//   kernel            bytes per element                     does
//   adamw_on_gpu      28 + gradient (4, 2) + rounded (2)    AdamW, and its result in 16 bits as well
//   block_sums        4 or 2                                the norm's sums, with the bits of the CPU
//   round_to_quanta   8 or 4                                for exact sums, with the bits of the CPU
//
// Tensors are contiguous, on one GPU, and start at multiples of 16 bytes. Every call only queues
// its work on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/optim/adamw_step.hpp"

namespace ladder {

// Updates any number of tensors, up to 128 in each launch. Of each, params [n], n a multiple of 4,
// and its state in fp32; gradients in fp32, bf16 or fp16. `rounded` takes the new parameters in
// bf16 or fp16, or is empty. Gradients have one type, and so has `rounded`. Throws CheckError
// for other types.
void adamw_on_gpu(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                  at::TensorList exp_avg_sqs, at::TensorList rounded, const AdamWStep& step);

// Sums of squares of blocks of 1024 elements (norm.hpp), of all pieces one after the other, read
// back in one copy: this waits for the GPU.
std::vector<double> block_sums_on_gpu(const std::vector<at::Tensor>& pieces);

// Rounds in place (exact_sums.hpp). quanta[0], on the GPU, belongs to the block of 1024 elements that
// begins `offset` elements before the first.
void round_to_quanta_on_gpu(const at::Tensor& values, const float* quanta, std::int64_t offset,
                            float share);

}  // namespace ladder
