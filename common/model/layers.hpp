// The three layers that a GPT is made of. Parameters are plain tensors; nothing here knows of
// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ladder {

// y = x W + b over the last dimension. W is [in, out], the orientation of GPT-2's own files (the
// transpose of torch::nn::Linear's), so a saved model needs no transposition.
//
// Runs on oneDNN's packed product where libtorch has it and the tensors are fp32 on the CPU: up to
// twice as fast there as the BLAS behind at::linear (benchmarks/README.md). The same kernel for
// every layer and step.
struct Linear {
  at::Tensor weight;                                 // [in, out]
  at::Tensor bias;                                   // [out], or undefined for none
  at::Tensor operator()(const at::Tensor& x) const;  // [..., in] -> [..., out]
};

// (x - mean) / sqrt(variance + 1e-5) · weight + bias over the last dimension (Ba et al., arXiv
// 1607.06450).
struct LayerNorm {
  at::Tensor weight;                                 // [C]
  at::Tensor bias;                                   // [C]
  at::Tensor operator()(const at::Tensor& x) const;  // [..., C] -> [..., C]
};

// Causal self-attention with `num_heads` heads: position t sees positions 0 … t (Vaswani et al.,
// arXiv 1706.03762).
struct Attention {
  Linear c_attn;  // [C] -> [3C]: query, key, value
  Linear c_proj;  // [C] -> [C]
  std::int64_t num_heads = 1;
  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, C] -> [B, T, C]
};

// x [..., in] times the transpose of weight [out, in]: the head, whose weight may be the token
// embedding.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight);

}  // namespace ladder
