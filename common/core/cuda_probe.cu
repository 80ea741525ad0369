#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "common/core/cuda_probe.hpp"

namespace ladder {
namespace {

constexpr int kThreadsPerBlock = 256;

__global__ void write_indices(float* data, std::int64_t numel) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < numel) data[i] = static_cast<float>(i);
}

}  // namespace

void fill_with_indices(float* data, std::int64_t numel) {
  if (numel == 0) return;  // a grid has at least one block
  const std::int64_t num_blocks = (numel + kThreadsPerBlock - 1) / kThreadsPerBlock;
  write_indices<<<static_cast<unsigned int>(num_blocks), kThreadsPerBlock, 0,
                  c10::cuda::getCurrentCUDAStream()>>>(data, numel);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder
