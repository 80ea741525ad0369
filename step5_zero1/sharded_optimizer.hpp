// ZeRO-1: every rank keeps the optimizer's state of its own slices, and updates these alone.
//
//   reduce_scatter   the gradients' sums: slice r lands on rank r, which is all that it needs
//   clip, step       on the own slices
//   all_gather       the new parameters: everybody has all of them again
//
// An all-reduce is a reduce_scatter with an all_gather behind it. Here the optimizer stands between
// the two, and gathers parameters instead of gradients: the same bytes, and 8/N instead of 8 bytes
// of state per parameter (Rajbhandari et al., arXiv 1910.02054, section 5.1).
//
// Collective: start_reduce_scatter(), clip_gradients(), sharded_norm(), all_gather_parameters().
// Throws:     what the communicator throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

// Starts the sum of a unit's gradients [N·n] over ranks, in place: rank r's slice r holds it when the
// work is done. The other slices are left as they are, this rank's own gradients: of no further use.
WorkPtr start_reduce_scatter(Communicator& comm, const at::Tensor& unit);

class ShardedOptimizer : public Optimizer {
 public:
  // `params` and `grads`: this rank's slice of each unit, updated and read where they lie.
  // Memory: AdamW 8 bytes per element of the plan's slices, counted as optimizer; SGD none.
  ShardedOptimizer(const ShardPlan& plan, const std::vector<at::Tensor>& params,
                   const std::vector<at::Tensor>& grads, const OptimizerOptions& options);
};

// The norm of what all ranks' slices make up, to the last bit that of one process: block sums are
// gathered, one double per 1024 elements, and added up in the order of the blocks.
double sharded_norm(const std::vector<at::Tensor>& slices, Communicator& comm);

// Scales the own slices so that the whole gradient has at most clip_norm (0: as it is), and returns
// the whole gradient's norm before that.
double clip_gradients(const std::vector<at::Tensor>& grads, double clip_norm, Communicator& comm);

// Every rank's slice of each unit, on every rank: the parameters are whole again. All units are in
// flight at once; units with nothing to train are left out.
void all_gather_parameters(FlatModel& model, Communicator& comm);

}  // namespace ladder
