// Causal attention: position t attends to 0 … t (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_options.hpp"
#include "common/model/modules.hpp"

namespace ladder {

// Who computes attention. libtorch's fused kernel saves no probabilities and is faster in fp32, but
// on a CPU in bf16 it takes 1.2 to 5 times as long as two products and a softmax
// (benchmarks/README.md).
enum class AttentionPath {
  kOnGpu,       // a fused kernel
  kFused,       // the CPU's, in fp32
  kWidened,     // the same, for 16-bit numbers as fp32
  kWrittenOut,  // two products and a softmax, as on paper
};

// The path on this machine's CPU, whose 16-bit instructions decide.
AttentionPath attention_path(at::ScalarType type);

// All paths that a GPU, or any CPU, may take: nothing depends on this machine.
std::vector<AttentionPath> attention_paths(at::ScalarType type, at::Device device);

// softmax(q kᵀ/√d) v of each head over earlier positions. q is [B, T, H, d], k and v are
// [B, T, K, d], where K divides H: head h reads the keys and values h·K/H (grouped-query attention,
// Ainslie et al., arXiv 2305.13245). Returns the heads side by side, [B, T, H·d].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// The bytes per token that it saves for backward, apart from its result. `options` has kv_heads.
std::int64_t saved_bytes_of_attention(const ModelOptions& options, AttentionPath path);

// The most bytes per token that its backward adds to that while it computes: two gradients of all
// probabilities where it is written out; elsewhere a few of queries, keys and values.
std::int64_t working_bytes_of_attention(const ModelOptions& options, AttentionPath path);

// GPT-2's self-attention, or some of its heads, of `head_channels` channels each.
struct Attention {
  Linear c_attn;  // [C] -> [3A]: query, key, value of A channels, which are C if all heads are here
  Linear c_proj;  // [A] -> [C]
  std::int64_t head_channels = 1;
  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, C] -> [B, T, C]
};

// Which of libtorch's attention kernels a model is trained with: "cudnn", "flash", "efficient" or
// "math" (which is not fused). It is what libtorch takes on this device for this model's shapes, as
// set_deterministic() allows now. Allocates one row of queries, keys and values for a moment. On
// the CPU it is right for fp32 only (modules.hpp).
std::string attention_backend(const ModelOptions& model, at::Device device);

}  // namespace ladder
