// What cuda/ computes, in a build without CUDA: nothing.
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/cross_entropy_on_gpu.hpp"
#include "common/model/fused_on_gpu.hpp"

namespace ladder {

bool has_fused_kernels(const at::Tensor& /*x*/) {
  return false;
}
bool has_fused_layer_norm(const at::Tensor& /*x*/) {
  return false;
}
Fork add_layer_norm_on_gpu(const at::Tensor& /*x*/, const std::optional<at::Tensor>& /*branch*/,
                           const at::Tensor& /*weight*/, const at::Tensor& /*bias*/,
                           double /*epsilon*/) {
  throw CheckError(cuda_problem());
}
at::Tensor bias_gelu_on_gpu(const at::Tensor& /*x*/, const at::Tensor& /*bias*/) {
  throw CheckError(cuda_problem());
}
at::Tensor row_sums_on_gpu(const at::Tensor& /*x*/) {
  throw CheckError(cuda_problem());
}

at::Tensor cross_entropy_sum_on_gpu(const at::Tensor& /*logits*/, const at::Tensor& /*targets*/,
                                    std::int64_t /*ignored_target*/) {
  throw CheckError(cuda_problem());
}

}  // namespace ladder
