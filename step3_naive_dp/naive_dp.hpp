// Data parallelism in two functions: start equal, and add up the gradients.
//
// Replicas that start with the same parameters and take every step with the same gradients stay
// equal for ever, to the bit, although no parameter is ever sent again. The gradient of the global
// batch is the sum of the ranks' gradients, since each rank divided by the global number of targets
// (step 0): nothing has to be divided here.
//
// Collective: every rank calls them at the same place, with the same model.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"

namespace ladder {

// Every replica's parameters become those of rank `root`, to the bit. Sends (N−1)·4 bytes per element
// of the layout, from the root alone.
void broadcast_parameters(FlatModel& model, Communicator& comm, int root = 0);

// Every rank's gradients become their sum over ranks, ((g0 + g1) + g2) + …: the same bits on every
// rank. One all-reduce per trainable tensor, one after the other, when backward has ended.
//
// A parameter that took no part in this rank's backward contributes its zeros: the other ranks'
// gradients count, and nobody waits. A frozen parameter is left out.
// Memory: the scratch of one all-reduce at a time, at most the largest tensor's.
void all_reduce_gradients(FlatGradients& grads, Communicator& comm);

}  // namespace ladder
