// Exercise of step 0: the loop over microbatches.
//
// Write it as step0_single_gpu/accumulate_gradients.hpp describes it, then:
//   ./ladder exercise step0_single_gpu
#include "step0_single_gpu/accumulate_gradients.hpp"

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

}  // namespace ladder
