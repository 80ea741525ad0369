#include "common/model/attention_backend.hpp"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "common/core/check.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

std::string name_of(at::SDPBackend backend) {
  switch (backend) {
    case at::SDPBackend::math:
      return "math";
    case at::SDPBackend::flash_attention:
      return "flash";
    case at::SDPBackend::efficient_attention:
      return "efficient";
    case at::SDPBackend::cudnn_attention:
      return "cudnn";
    default:
      return concat("backend ", static_cast<int>(backend));
  }
}

}  // namespace

// Strides matter, so queries, keys and values lie as in the model. The number of rows does not.
std::string attention_backend(const ModelOptions& model, at::Device device) {
  const std::unique_ptr<Family> family = family_of(model);
  const std::int64_t T = model.context, H = model.heads, K = family->options().kv_heads;
  const std::int64_t d = model.channels / H;
  const auto empty = [&](std::int64_t num_heads) {
    return at::empty({1, T, num_heads * d},
                     at::TensorOptions().dtype(model.precision.params).device(device))
        .set_requires_grad(true);
  };
  std::vector<at::Tensor> parts = family->has_joint_qkv()
                                      ? empty(3 * H).split(H * d, /*dim=*/2)
                                      : std::vector{empty(H), empty(K), empty(K)};
  for (at::Tensor& part : parts) part = part.view({1, T, -1, d}).transpose(1, 2);
  return name_of(static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0,
                            /*is_causal=*/true, /*scale=*/{}, /*enable_gqa=*/K != H)));
}

}  // namespace ladder
