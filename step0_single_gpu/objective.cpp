#include "step0_single_gpu/objective.hpp"

#include <ATen/ops/cross_entropy_loss.h>

namespace ladder {

at::Tensor widened(const at::Tensor& outputs) {
  const bool is_narrow =
      outputs.scalar_type() == at::kBFloat16 || outputs.scalar_type() == at::kHalf;
  return is_narrow ? outputs.to(at::kFloat) : outputs;
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(widened(logits).flatten(0, -2), targets.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kIgnoredTarget);
}

}  // namespace ladder
