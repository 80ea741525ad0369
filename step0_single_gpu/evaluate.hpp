// The loss of a model as it is, without gradients.
#pragma once

#include "common/data/batch.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder {

// The mean loss per target over these microbatches, in nats, with the same one denominator and
// without gradients. NaN if there is no target.
double evaluate(const LossSum& loss_sum, const Microbatches& batches);

}  // namespace ladder
