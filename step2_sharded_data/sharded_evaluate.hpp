// The validation loss, with the work divided among the ranks.
//
// Collective: every rank passes the same batches and gets the same loss. Rank r runs the forward of
// microbatches r, r + N, …; the losses are then added up in microbatch order, so that the result
// equals that of one process to the bit.
#pragma once

#include <vector>

#include "common/comm/communicator.hpp"
#include "step0_single_gpu/evaluate.hpp"

namespace ladder {

// Like evaluate() of step 0. Every rank already has the token ids of all microbatches; only the
// forward passes are divided. Sends one double per microbatch, in one all-reduce. A rank that is
// asked to stop runs no further ones, and all return kStoppedLoss.
double evaluate(const LossSum& loss_sum, const Microbatches& batches, Communicator& comm);

// The last part of evaluate(). `own`: the summed losses of this rank's microbatches, each [], in
// double. Returns kStoppedLoss if any rank is stopped.
double mean_loss(const std::vector<at::Tensor>& own, bool is_stopped, const Microbatches& batches,
                 Communicator& comm);

}  // namespace ladder
