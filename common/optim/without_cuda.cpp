// What cuda/ computes, in a build without CUDA: nothing.
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/optim/on_gpu.hpp"

namespace ladder {

void adamw_on_gpu(at::TensorList /*params*/, at::TensorList /*grads*/, at::TensorList /*exp_avgs*/,
                  at::TensorList /*exp_avg_sqs*/, at::TensorList /*rounded*/,
                  const AdamWStep& /*step*/) {
  throw CheckError(cuda_problem());
}

std::vector<double> block_sums_on_gpu(const std::vector<at::Tensor>& /*pieces*/) {
  throw CheckError(cuda_problem());
}

void round_to_quanta_on_gpu(const at::Tensor& /*values*/, const float* /*quanta*/,
                            std::int64_t /*offset*/, float /*share*/) {
  throw CheckError(cuda_problem());
}

}  // namespace ladder
