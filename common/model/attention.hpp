// Causal attention: position t attends to 0 … t (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "common/core/device.hpp"
#include "common/model/attention_path.hpp"
#include "common/model/model_options.hpp"
#include "common/model/modules.hpp"

namespace ladder {

// softmax(q kᵀ/√d) v of each head over earlier positions. q is [B, T, H, d], k and v are
// [B, T, K, d], where K divides H: head h reads the keys and values h·K/H (grouped-query attention,
// Ainslie et al., arXiv 2305.13245). Returns the heads side by side, [B, T, H·d].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

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
std::string attention_backend(const ModelOptions& model, Device device);

}  // namespace ladder
