#include "common/model/attention_backend.hpp"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "common/core/check.hpp"

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

// Strides matter, so queries, keys and values are cut from one tensor, as in Attention. The number
// of rows does not.
std::string attention_backend(const ModelOptions& model, at::Device device) {
  const std::int64_t T = model.context, C = model.channels, H = model.heads;
  const at::Tensor qkv =
      at::empty({1, T, 3 * C}, at::TensorOptions().dtype(model.precision.params).device(device))
          .set_requires_grad(true);
  std::vector<at::Tensor> parts = qkv.split(C, /*dim=*/2);
  for (at::Tensor& part : parts) part = part.view({1, T, H, C / H}).transpose(1, 2);
  return name_of(static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0,
                            /*is_causal=*/true)));
}

}  // namespace ladder
