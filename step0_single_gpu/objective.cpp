#include "step0_single_gpu/objective.hpp"

#include <ATen/ops/cross_entropy_loss.h>

#include "common/core/cuda_device.hpp"
#include "common/core/precision.hpp"
#include "common/model/cross_entropy_on_gpu.hpp"

namespace ladder {

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor there = to_device(targets, logits.device());
  if (logits.is_cuda()) return cross_entropy_sum_on_gpu(logits, there, kIgnoredTarget);
  return at::cross_entropy_loss(widened(logits).flatten(0, -2), there.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kIgnoredTarget);
}

}  // namespace ladder
