// Causal attention: position t attends to 0 … t (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/model_options.hpp"
#include "common/model/modules.hpp"

namespace ladder {

// Whether attention on the CPU is two products and a softmax, as on paper, instead of libtorch's
// fused kernel. That one saves no probabilities and is faster in fp32, but in bf16 it takes 1.2 to
// 5 times as long (benchmarks/README.md).
bool is_attention_written_out(at::ScalarType type);

// softmax(q kᵀ/√d) v of each head over earlier positions. q is [B, T, H, d], k and v are
// [B, T, K, d], where K divides H: head h reads the keys and values h·K/H (grouped-query attention,
// Ainslie et al., arXiv 2305.13245). Returns the heads side by side, [B, T, H·d].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// The bytes per token that it saves for backward on the CPU, apart from its result. `options` has
// kv_heads.
std::int64_t saved_bytes_of_attention(const ModelOptions& options);

// GPT-2's self-attention with `num_heads` heads.
struct Attention {
  Linear c_attn;  // [C] -> [3C]: query, key, value
  Linear c_proj;  // [C] -> [C]
  std::int64_t num_heads = 1;
  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, C] -> [B, T, C]
};

}  // namespace ladder
