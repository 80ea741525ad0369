// The loop over microbatches, and its one denominator.
//
// An optimizer step sees m microbatches, because all its rows at once would not fit into memory.
// It needs the gradient of the mean loss over all target tokens of the step:
//
//   loss = (Σ over microbatches of the summed loss) / (number of targets in the whole step)
//
// Microbatches rarely have equally many targets (documents end, rows are padded), so the mean of
// their means is a different number: with 30 and 10 targets and means 1 and 3 it is 2.0, but the
// loss is 1.5. Hence one rule for the whole course: the number of targets in the whole step, over
// all microbatches and later over all ranks, is known before the first backward. Each backward
// differentiates (summed loss) / (that number), so gradients are plain sums and never need
// rescaling. How a step is cut into microbatches, ranks or stages does not change its gradient.
#pragma once

#include "common/data/batch.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {

// Runs each microbatch forward and backward, in order, and returns this rank's part of the step's
// loss: the sum, in double, of what each backward differentiates, (summed loss) / num_targets,
// rounded as its tensor is. Dividing a sum of summed losses gives other last bits.
//
// num_targets counts the whole step: this rank's microbatches and those of all other ranks.
// Gradients: added in microbatch order to what .grad holds (zero it first).
// Padding:   a step without any target has a loss of 0 and gradients of 0. Its microbatches run
//            all the same: the hooks of later steps count them.
// Memory:    the activations of one microbatch at a time.
// Throws:    CheckError if num_targets is negative or not a number.
double accumulate_gradients(const LossSum& loss_sum, const Microbatches& batch, double num_targets);

}  // namespace ladder
