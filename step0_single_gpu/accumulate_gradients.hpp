// The loop over microbatches, and its one denominator.
//
// An optimizer step sees m microbatches, because all its rows at once would not fit into memory.
// What it wants is the gradient of the mean loss over all target tokens of the step:
//
//   loss = (Σ over microbatches of the summed loss) / (number of targets in the whole step)
//
// Microbatches rarely have equally many targets (documents end, rows are padded), so the mean of
// their means is another number: with 30 and 10 targets and means 1 and 3 it is 2.0, and the loss
// is 1.5. Hence one rule for the whole course: the number of targets of the whole step, over all
// microbatches and later over all ranks, is known before the first backward; what is differentiated
// is sum / that number; and gradients are then plain sums, of which no scale need be taken off or
// put on again. How a step is cut into microbatches, ranks or stages does not change its gradient.
#pragma once

#include "common/data/batch.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {

// Runs each microbatch forward and backward, in order, and returns this rank's part of the step's
// loss: (Σ summed losses) / num_targets, added up in double.
//
// num_targets counts the whole step: this rank's microbatches and those of all other ranks.
// Gradients: added to what .grad holds (zero it first), in the order of the microbatches.
// Memory:    the activations of one microbatch at a time.
// Throws:    CheckError if num_targets is not positive: no target, no mean loss.
double accumulate_gradients(const LossSum& loss_sum, const Microbatches& batch, double num_targets);

}  // namespace ladder
