// Exercise of step 0: the loop over microbatches.
//
// Write accumulate_gradients() as step0_single_gpu/accumulate_gradients.hpp describes it;
// evaluate() is given, and shows the same denominator at work without gradients. Then: ./ladder
// exercise step0_single_gpu
#include "step0_single_gpu/accumulate_gradients.hpp"

#include <ATen/core/grad_mode.h>

#include "common/core/check.hpp"

namespace ladder {

double accumulate_gradients(const LossSum& loss_sum, const Microbatches& batch,
                            double num_targets) {
  // For each microbatch, in order: loss_sum(microbatch) is a tensor of one number that can be
  // differentiated (tensor.backward() adds to .grad, tensor.item<double>() reads it). What is the
  // one number to divide by, and when?
  static_cast<void>(loss_sum);
  static_cast<void>(batch);
  static_cast<void>(num_targets);
  not_implemented("step0_single_gpu: accumulate_gradients()");
}

double evaluate(const LossSum& loss_sum, const Microbatches& batches) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const Microbatch& microbatch : batches) sum += loss_sum(microbatch).item<double>();
  return sum / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
