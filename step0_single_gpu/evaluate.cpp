#include "step0_single_gpu/evaluate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "common/core/stop_signal.hpp"
#include "common/core/trace.hpp"

namespace ladder {

double evaluate(const LossSum& loss_sum, const Microbatches& batches) {
  const Span span("evaluate");
  const at::NoGradGuard no_grad;
  at::Tensor sum = at::zeros({}, at::kDouble);  // on the device: reading it waits for the device
  for (const Microbatch& microbatch : batches) {
    if (StopSignal::was_raised()) return kStoppedLoss;
    sum = sum + loss_sum(microbatch);
  }
  return sum.item<double>() / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
