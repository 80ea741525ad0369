// Exercise of step 5: the optimizer runs between the two halves of an all-reduce.
//
// own_slice() is given. Write the four bodies as step5_zero1/sharded_optimizer.hpp describes them;
// shard_plan.hpp, which is complete, says which rank owns what. Then run:
//   ./ladder exercise step5_zero1
#include "step5_zero1/sharded_optimizer.hpp"

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"

namespace ladder {
namespace {

// This rank's piece, as a view, of a unit or of any other tensor made of N equal pieces [N·n].
[[maybe_unused]] at::Tensor own_slice(const at::Tensor& unit, const Communicator& comm) {
  const std::int64_t numel = unit.numel() / comm.size();
  return unit.narrow(0, comm.rank() * numel, numel);
}

}  // namespace

WorkPtr start_reduce_scatter(Communicator& /*comm*/, const at::Tensor& /*unit*/) {
  // Where should the sum of this rank's piece go? Do not wait: backward continues meanwhile.
  not_implemented("step5_zero1: start_reduce_scatter()");
}

ShardedOptimizer::ShardedOptimizer(const ShardPlan& /*plan*/,
                                   const std::vector<at::Tensor>& /*params*/,
                                   const std::vector<at::Tensor>& /*grads*/,
                                   const OptimizerOptions& options)
    : Optimizer(/*slices=*/{}, /*state_numel=*/0, /*layout=*/{}, options) {
  // An Optimizer works on any slices: tell its constructor which ones, for how many elements it must
  // keep state, and as what and where the layout says. plan_own_updates() knows what is frozen. This body itself
  // stays empty.
  not_implemented("step5_zero1: ShardedOptimizer::ShardedOptimizer()");
}

double sharded_norm(const std::vector<at::Tensor>& /*slices*/, Communicator& /*comm*/) {
  // block_sums() and norm_of() in common/optim/norm.hpp do the arithmetic. In which order do the
  // gathered sums arrive, and in which order would a single process add them up?
  not_implemented("step5_zero1: sharded_norm()");
}

void all_gather_parameters(FlatModel& /*model*/, Communicator& /*comm*/) {
  // plan_unit_buckets() lists the units; model.params() is the buffer that holds them all.
  not_implemented("step5_zero1: all_gather_parameters()");
}

}  // namespace ladder
