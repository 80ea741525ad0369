// The kernels of fused_on_gpu.hpp, over plain memory: all pointers are the GPU's, aligned to 16
// bytes, and every function only starts its kernel on `stream`. Throws c10::Error if it cannot, and
// CheckError for other types and shapes.
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace ladder::kernels {

// [num_rows, num_columns], the rows one after the other, num_columns a multiple of 8.
struct Rows {
  c10::ScalarType type = c10::ScalarType::BFloat16;  // bf16 or fp16; sums are in fp32
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
};

inline constexpr std::int64_t kMostNormColumns = 2048;  // that a block's registers hold

struct RowStatistics {
  float mean = 0;
  float scale = 0;  // 1 / sqrt(variance + epsilon)
};

// sum = x + branch, normed = LayerNorm(sum) with weight and bias [num_columns]. `branch` and `sum`
// may be null: then x is the sum. statistics[num_rows] is what backward needs.
void add_layer_norm(const Rows& rows, const void* x, const void* branch, const void* weight,
                    const void* bias, float epsilon, void* sum, void* normed,
                    RowStatistics* statistics, cudaStream_t stream);

// dx = dsum + the gradient through the norm; `dsum` may be null for 0. Each part of the rows leaves
// its sums over rows, those of the weight's gradient and then those of the bias's:
// parts[num_norm_parts(num_rows), 2 * num_columns].
void add_layer_norm_backward(const Rows& rows, const void* sum, const RowStatistics* statistics,
                             const void* weight, const void* dnormed, const void* dsum, void* dx,
                             float* parts, cudaStream_t stream);
std::int64_t num_norm_parts(std::int64_t num_rows);

// y = GELU(x + bias) by tanh, bias [num_columns].
void bias_gelu(const Rows& rows, const void* x, const void* bias, void* y, cudaStream_t stream);

// dx, and its sums over the rows of each part: parts[num_parts(rows), num_columns].
void bias_gelu_backward(const Rows& rows, const void* x, const void* bias, const void* dy, void* dx,
                        float* parts, cudaStream_t stream);

// The sums of values alone: parts[num_parts(rows), num_columns].
void sum_rows(const Rows& rows, const void* values, float* parts, cudaStream_t stream);
std::int64_t num_parts(const Rows& rows);

// sums[num_columns] of parts [num_parts, num_columns], in an order that only num_parts decides.
void add_parts(const float* parts, std::int64_t num_parts, std::int64_t num_columns, float* sums,
               cudaStream_t stream);

}  // namespace ladder::kernels
