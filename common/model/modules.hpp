// The modules that the layers of a GPT are made of. Parameters are plain tensors; nothing here
// knows about ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ladder {

// Which library multiplies fp32 matrices on the CPU. kOneDnn: its packed product, where libtorch has
// it, up to twice as fast on some CPUs (benchmarks/README.md). kBlas: the BLAS behind at::addmm,
// which torch.nn.Linear calls as well. Both are right; their last bits differ, so runs are equal to
// the bit only within one choice. Other dtypes and devices always take at::addmm.
enum class Products { kOneDnn, kBlas };

// y = x W + b over the last dimension. W is [in, out], the orientation of GPT-2's own files (the
// transpose of torch::nn::Linear's), so a saved model needs no transposition. Forward and backward
// take their three products from the same library.
struct Linear {
  at::Tensor weight;  // [in, out]
  at::Tensor bias;    // [out], or undefined for none
  Products products = Products::kOneDnn;
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
at::Tensor project(const at::Tensor& x, const at::Tensor& weight,
                   Products products = Products::kOneDnn);

}  // namespace ladder
