// The kernels of on_gpu.hpp, over plain memory: all pointers are the GPU's, and every function only
// starts its kernel on `stream`. Throws c10::Error if it cannot, and CheckError for other types or
// a tensor that is not aligned.
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "common/optim/adamw_step.hpp"

namespace ladder::kernels {

struct AdamWTensor {
  float* params = nullptr;
  const void* grads = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  void* rounded = nullptr;  // null for all tensors of a call or for none; takes the new parameters
  std::int64_t numel = 0;   // a multiple of 4
};
void adamw(const std::vector<AdamWTensor>& tensors, c10::ScalarType grad_type,
           c10::ScalarType rounded_type, const AdamWFactors& factors, cudaStream_t stream);

// One sum for each 1024 elements: sums[ceil(numel / 1024)].
void block_sums(const void* values, c10::ScalarType type, double* sums, std::int64_t numel,
                cudaStream_t stream);

// In place. quanta[0] belongs to the block that begins `offset` elements before the first.
void round_to_quanta(void* values, c10::ScalarType type, std::int64_t numel, const float* quanta,
                     std::int64_t offset, float share, cudaStream_t stream);

}  // namespace ladder::kernels
