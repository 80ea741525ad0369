#include "common/model/attention.hpp"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

// The queries that share keys and values are rows of one matrix, so nothing is copied for them.
// q and the result: [B, H, T, d], k and v: [B, K, T, d].
at::Tensor written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t B = q.size(0), H = q.size(1), T = q.size(2), d = q.size(3), K = k.size(1);
  const auto matrices = [&](const at::Tensor& part) { return part.reshape({B * K, -1, d}); };
  const at::Tensor future =
      at::full({H / K, T, T}, -std::numeric_limits<double>::infinity(), q.options()).triu_(1);
  const at::Tensor scores =
      at::baddbmm(future.view({-1, T}), matrices(q), matrices(k).transpose(1, 2),
                  /*beta=*/1, /*alpha=*/1 / std::sqrt(static_cast<double>(d)));
  return at::bmm(scores.softmax(-1), matrices(v)).view({B, H, T, d});
}

// What libtorch takes for them. Strides matter; the number of rows does not.
at::SDPBackend backend_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
                            /*scale=*/{}, /*enable_gqa=*/q.size(1) != k.size(1)));
}

// Where no fused kernel takes fewer keys and values than queries, each gets its own copy.
at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t group = q.size(1) / k.size(1);
  const bool is_grouped = group > 1;
  if (is_grouped && q.is_cuda() && backend_of(q, k, v) == at::SDPBackend::math)
    return fused(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1));
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, /*scale=*/{}, is_grouped);
}

at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType type = q.scalar_type();
  if (!q.is_cpu() || !is_16_bit(type)) return fused(q, k, v);
  if (attention_path(format_of(type)) == AttentionPath::kWrittenOut) return written_out(q, k, v);
  return fused(widened(q), widened(k), widened(v)).to(type);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor mixed = mix(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));
  return mixed.transpose(1, 2).reshape({q.size(0), q.size(1), -1});
}

at::Tensor Attention::operator()(const at::Tensor& x) const {
  const at::Tensor joint = c_attn(x);
  std::vector<at::Tensor> qkv = joint.split(joint.size(2) / 3, /*dim=*/2);
  for (at::Tensor& each : qkv) each = each.view({x.size(0), x.size(1), -1, head_channels});
  return c_proj(causal_attention(qkv[0], qkv[1], qkv[2]));
}

// Queries, keys and values lie as in the model.
std::string attention_backend(const ModelOptions& model, Device device) {
  const std::unique_ptr<Family> family = family_of(model);
  const std::int64_t T = model.context, H = model.heads, K = family->options().kv_heads;
  const std::int64_t d = head_channels_of(model);
  const auto empty = [&](std::int64_t num_heads) {
    return at::empty(
               {1, T, num_heads * d},
               at::TensorOptions().dtype(to_torch(model.precision.params)).device(to_torch(device)))
        .set_requires_grad(true);
  };
  std::vector<at::Tensor> parts = family->traits().has_joint_qkv()
                                      ? empty(3 * H).split(H * d, /*dim=*/2)
                                      : std::vector{empty(H), empty(K), empty(K)};
  for (at::Tensor& part : parts) part = part.view({1, T, -1, d}).transpose(1, 2);
  static const std::map<at::SDPBackend, std::string> kNames = {
      {at::SDPBackend::math, "math"},
      {at::SDPBackend::flash_attention, "flash"},
      {at::SDPBackend::efficient_attention, "efficient"},
      {at::SDPBackend::cudnn_attention, "cudnn"}};
  const at::SDPBackend backend = backend_of(parts[0], parts[1], parts[2]);
  const auto found = kNames.find(backend);
  return found != kNames.end() ? found->second : concat("backend ", static_cast<int>(backend));
}

}  // namespace ladder
