// Evaluation: the loss of the current parameters, without gradients.
#pragma once

#include "common/data/batch.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder {

// Returns the mean loss per target over these microbatches, in nats. As in training, one
// denominator serves them all. NaN if they have no targets; kStoppedLoss, soon, if this rank is asked
// to stop meanwhile.
double evaluate(const LossSum& loss_sum, const Microbatches& batches);

}  // namespace ladder
