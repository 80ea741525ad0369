#include "step0_single_gpu/evaluate.hpp"

#include <ATen/core/grad_mode.h>

namespace ladder {

double evaluate(const LossSum& loss_sum, const Microbatches& batches) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const Microbatch& microbatch : batches) sum += loss_sum(microbatch).item<double>();
  return sum / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
