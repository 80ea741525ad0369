// Data parallelism in two functions: one makes the replicas equal, the other sums their gradients.
//
// Replicas that start with the same parameters and take every step with the same gradients stay
// equal to the bit forever, although no parameter is ever sent again. The gradient of the global
// batch is the sum of the ranks' gradients, because each rank already divided its loss by the
// global number of targets (step 0): no division is needed here.
//
// Collective: every rank calls them at the same point, with the same model.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"

namespace ladder {

// Copies the parameters of rank `root` to every replica, to the bit. Only the root sends: at most
// (N−1)·4 bytes per element of the layout.
void broadcast_parameters(FlatModel& model, Communicator& comm, int root = 0);

// Replaces every rank's gradients by their sum over ranks, (g0 + g1) + (g2 + g3): the same bits on
// every rank. One all-reduce per trainable tensor, one after the other, after backward.
//
// A parameter that took no part in this rank's backward contributes zeros: the other ranks'
// gradients still count, and no rank is left waiting. Frozen parameters are skipped.
// Memory: the scratch of one all-reduce at a time, at most the largest tensor's.
void all_reduce_gradients(FlatGradients& grads, Communicator& comm);

}  // namespace ladder
