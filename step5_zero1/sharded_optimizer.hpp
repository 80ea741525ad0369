// ZeRO-1: every rank keeps the optimizer state for its own slices, and updates only those.
//
//   reduce_scatter   sums the gradients: slice r lands on rank r, which needs no other
//   clip, step       on this rank's slices
//   all_gather       the new parameters: every rank has all of them again, when the next forward
//                    needs them (parameter_gather.hpp)
//
// An all-reduce is a reduce_scatter followed by an all_gather. Here the optimizer runs between the
// two, and parameters are gathered instead of gradients: the same bytes, but 8/N instead of 8 bytes
// of state per parameter (Rajbhandari et al., arXiv 1910.02054, section 5.1).
//
// Collective: start_reduce_scatter(), sharded_norm(), start_parameter_gathers().
// Throws:     what the communicator throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

// Starts to sum a unit's gradients [N·n] over ranks, in place: when the work is done, slice r on
// rank r holds its part of the sum. The other slices keep this rank's own gradients, now useless.
WorkPtr start_reduce_scatter(Communicator& comm, const at::Tensor& unit);

class ShardedOptimizer : public Optimizer {
 public:
  // `params` and `grads`: this rank's slice of each unit. Both are used in place.
  // Memory: AdamW 8 bytes per element of the plan's slices, counted as optimizer; SGD none.
  ShardedOptimizer(const ShardPlan& plan, const std::vector<at::Tensor>& params,
                   const std::vector<at::Tensor>& grads, const OptimizerOptions& options);
};

// The norm over all ranks' slices, to the bit that of one process: block sums, one double per 1024
// elements, are gathered in one operation and added up in block order. `slices`: this rank's slice
// of each unit, frozen ones included, in the layout's order. The result is the same on every rank.
Norm sharded_norm(const std::vector<at::Tensor>& slices, Communicator& comm);

// Starts to send every rank's slice of each unit to every rank: when all is done, the parameters are
// whole again. All units are in flight at once, from first to last, as a forward needs them. Returns
// their handles by unit; a unit without a trainable tensor is not sent, and is done at once.
std::vector<WorkPtr> start_parameter_gathers(FlatModel& model, Communicator& comm);

}  // namespace ladder
