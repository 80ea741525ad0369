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
#include "common/core/precision.hpp"
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
  if (attention_path(type) == AttentionPath::kWrittenOut) return written_out(q, k, v);
  return fused(widened(q), widened(k), widened(v)).to(type);
}

}  // namespace

AttentionPath attention_path(at::ScalarType type) {
  if (!is_16_bit(type)) return AttentionPath::kFused;
  return has_instructions_for(type) ? AttentionPath::kWrittenOut : AttentionPath::kWidened;
}

std::vector<AttentionPath> attention_paths(at::ScalarType type, at::Device device) {
  if (device.is_cuda()) return {AttentionPath::kOnGpu};
  if (!is_16_bit(type)) return {AttentionPath::kFused};
  if (type == at::kHalf) return {AttentionPath::kWidened};  // no CPU has instructions that we use
  return {AttentionPath::kWidened, AttentionPath::kWrittenOut};
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor mixed = mix(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));
  return mixed.transpose(1, 2).reshape({q.size(0), q.size(1), -1});
}

// Queries, keys and values. Norms of the first two also what came in, and one number each. The
// fused kernel also its output, which is the result itself in fp32, and one log-sum per head, all in
// fp32 if 16 bits are widened for it; the one that is written out all probabilities. A GPU's kernels
// copy heads whose channels are no multiple of 8, and in fp32 each query's shared keys and values.
std::int64_t saved_bytes_of_attention(const ModelOptions& options, AttentionPath path) {
  const std::int64_t H = options.heads, K = options.kv_heads, d = head_channels_of(options);
  const std::int64_t A = H * d, qkv = A + 2 * d * K, e = options.precision.param_bytes();
  const QkNorm qk_norm = traits_of(options.family).qk_norm();
  const std::int64_t norms =
      qk_norm == QkNorm::kNone ? 0
                               : e * d * (H + K) + 4 * (qk_norm == QkNorm::kOfEachHead ? H + K : 2);
  switch (path) {
    case AttentionPath::kFused:
      return norms + 4 * (qkv + H);
    case AttentionPath::kWidened:
      return norms + 4 * (qkv + A + H);
    case AttentionPath::kWrittenOut:
      return norms + e * (qkv + H * options.context);
    case AttentionPath::kOnGpu: {
      const std::int64_t padded = d % 8 == 0 ? 0 : (d + 7) / 8 * 8 * (2 * H + 2 * K);
      return norms + e * (qkv + padded + (e == 4 && K < H ? 2 * A : 0)) + 4 * H;
    }
  }
  throw CheckError("attention: no such path");
}

std::int64_t working_bytes_of_attention(const ModelOptions& options, AttentionPath path) {
  const std::int64_t A = query_channels_of(options), e = options.precision.param_bytes();
  const std::int64_t probabilities =
      path == AttentionPath::kWrittenOut ? options.heads * options.context : 0;
  return 2 * e * probabilities + 4 * 7 * A;
}

at::Tensor Attention::operator()(const at::Tensor& x) const {
  const at::Tensor joint = c_attn(x);
  std::vector<at::Tensor> qkv = joint.split(joint.size(2) / 3, /*dim=*/2);
  for (at::Tensor& each : qkv) each = each.view({x.size(0), x.size(1), -1, head_channels});
  return c_proj(causal_attention(qkv[0], qkv[1], qkv[2]));
}

// Queries, keys and values lie as in the model.
std::string attention_backend(const ModelOptions& model, at::Device device) {
  const std::unique_ptr<Family> family = family_of(model);
  const std::int64_t T = model.context, H = model.heads, K = family->options().kv_heads;
  const std::int64_t d = head_channels_of(model);
  const auto empty = [&](std::int64_t num_heads) {
    return at::empty({1, T, num_heads * d},
                     at::TensorOptions().dtype(model.precision.params).device(device))
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
