// The validation loss, with the work shared out over the ranks.
//
// Collective: every rank passes the same batches and gets the same loss. Rank r runs microbatch r,
// r + N, … forward; the sums are then added up in the order of the microbatches, so that the result
// is that of one process to the bit.
#pragma once

#include "common/comm/communicator.hpp"
#include "step0_single_gpu/evaluate.hpp"

namespace ladder {

// As evaluate() of step 0. The token ids of all microbatches are there already, on every rank: what is
// shared out is the forward passes. Sends one double per microbatch, in one all-reduce.
double evaluate(const LossSum& loss_sum, const Microbatches& batches, Communicator& comm);

}  // namespace ladder
