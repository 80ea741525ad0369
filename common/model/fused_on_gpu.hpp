// What a block of a model computes between its products, on a GPU in 16 bits: several operators in
// one pass through memory, with sums in fp32. Each also adds up the gradients of its parameters,
// which are sums over all tokens, in fp32 and in an order that the number of tokens decides.
//
//   bytes per number, read and written           kernels    ATen's operators
//   x + branch and its LayerNorm                       8                  10
//   backward, with both gradients of the sum           8                  16
//   GELU(x + bias)                                     4                   4
//   backward, with the bias's gradient                 6                   8
//   a bias's gradient alone                            2                   2
//
// Saved for backward: the inputs, and 8 bytes a token for LayerNorm.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ladder {

// Whether the kernels take x [..., C]: bf16 or fp16 on a GPU, no gaps, C a multiple of 8 (of a
// LayerNorm: up to 2048), and an address that is a multiple of 16.
bool has_fused_kernels(const at::Tensor& x);
bool has_fused_layer_norm(const at::Tensor& x);

struct Fork {
  at::Tensor stream;  // [..., C], what the branch leaves
  at::Tensor normed;  // [..., C], what it begins with
};

// x + branch, or x itself without one, and the LayerNorm of that. weight and bias [C].
Fork add_layer_norm_on_gpu(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                           const at::Tensor& weight, const at::Tensor& bias, double epsilon);

// GELU(x + bias) by tanh, bias [C].
at::Tensor bias_gelu_on_gpu(const at::Tensor& x, const at::Tensor& bias);

// Sums over all but the last dimension, [C] in fp32.
at::Tensor row_sums_on_gpu(const at::Tensor& x);

}  // namespace ladder
