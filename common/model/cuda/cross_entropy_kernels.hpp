// The kernels of cross_entropy_on_gpu.hpp, over plain memory: all pointers are the GPU's, aligned
// to their elements' size, and every function only starts its kernel on `stream`. Throws c10::Error
// if it cannot, and CheckError for other types or too many rows.
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/softmax_sum.hpp"

namespace ladder::kernels {

struct LogitRows {
  const void* logits = nullptr;  // [num_rows, num_classes]
  c10::ScalarType type = c10::ScalarType::Float;
  std::int64_t num_rows = 0;
  std::int64_t num_classes = 0;
  // Elements from one row's start to the next, of logits and gradients.
  std::int64_t row_stride = 0;
  const std::int64_t* targets = nullptr;  // [num_rows]
  std::int64_t ignored_target = 0;
};

// losses[num_rows]: 0 where the target is ignored. sums[num_rows] is what backward needs.
void cross_entropy(const LogitRows& rows, float* losses, SoftmaxSum* sums, cudaStream_t stream);

// gradients[num_rows, num_classes], with the type and the row stride of the logits: those of
// upstream[0] times the sum of the losses. `gradients` may not be the logits.
void cross_entropy_backward(const LogitRows& rows, const SoftmaxSum* sums, const float* upstream,
                            void* gradients, cudaStream_t stream);

}  // namespace ladder::kernels
