// The kernels of on_gpu.hpp, over plain memory: all pointers are the GPU's, and every function only
// starts its kernel on `stream`. Throws c10::Error if it cannot, and CheckError for other types or
// a tensor that is not aligned.
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/optim/adamw_step.hpp"

namespace ladder::kernels {

// `rounded` may be null; otherwise the new parameters are also written there, in `rounded_type`.
void adamw(float* params, const void* grads, c10::ScalarType grad_type, float* exp_avg,
           float* exp_avg_sq, void* rounded, c10::ScalarType rounded_type, std::int64_t numel,
           const AdamWFactors& factors, cudaStream_t stream);

// One sum for each 1024 elements: sums[ceil(numel / 1024)].
void block_sums(const void* values, c10::ScalarType type, double* sums, std::int64_t numel,
                cudaStream_t stream);

}  // namespace ladder::kernels
