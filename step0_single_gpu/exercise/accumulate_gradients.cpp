// Exercise of step 0: the loop over microbatches.
//
// Write it as step0_single_gpu/accumulate_gradients.hpp describes it, then run:
//   ./ladder exercise step0_single_gpu
#include "step0_single_gpu/accumulate_gradients.hpp"

#include "common/core/check.hpp"

namespace ladder {

double accumulate_gradients(const LossSum& loss_sum, const Microbatches& batch, double num_targets,
                            double loss_scale) {
  // Go through the microbatches in order. loss_sum(microbatch) is a differentiable tensor with one
  // element (tensor.backward() adds to .grad, tensor.item<double>() reads its value). Which single
  // number do you divide by, and when? loss_scale is 1 until you train in fp16: backward() takes a
  // tensor that the gradients are multiplied by.
  static_cast<void>(loss_sum);
  static_cast<void>(batch);
  static_cast<void>(num_targets);
  static_cast<void>(loss_scale);
  not_implemented("step0_single_gpu: accumulate_gradients()");
}

}  // namespace ladder
