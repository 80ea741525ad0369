#include "step5_zero1/sharded_optimizer.hpp"

#include <ATen/ops/empty.h>

#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"

namespace ladder {
namespace {

// This rank's slice, as a view, of a unit or of any other tensor made of N equal slices [N·n].
at::Tensor own_slice(const at::Tensor& unit, const Communicator& comm) {
  const std::int64_t numel = unit.numel() / comm.size();
  return unit.narrow(0, comm.rank() * numel, numel);
}

}  // namespace

WorkPtr start_reduce_scatter(Communicator& comm, const at::Tensor& unit) {
  return comm.reduce_scatter(unit, own_slice(unit, comm));
}

ShardedOptimizer::ShardedOptimizer(const ShardPlan& plan, const std::vector<at::Tensor>& params,
                                   const std::vector<at::Tensor>& grads,
                                   const OptimizerOptions& options)
    : Optimizer(plan_own_updates(plan, params, grads), plan.numel, plan.layout, options) {}

Norm sharded_norm(const std::vector<at::Tensor>& slices, Communicator& comm) {
  const std::vector<double> own = block_sums(slices);
  const auto num_own = static_cast<std::int64_t>(own.size());
  const MemoryScope scope(MemoryCategory::kCommunication);
  const at::Tensor all = at::empty({comm.size() * num_own}, at::kDouble);
  double* const sums = all.mutable_data_ptr<double>();
  std::copy(own.begin(), own.end(), sums + comm.rank() * num_own);
  const Span span("sum of squares");
  comm.all_gather(own_slice(all, comm), all)->wait();

  // They arrive rank by rank. The order of the blocks is unit by unit, and within a unit rank by
  // rank.
  std::vector<double> ordered;
  std::int64_t begin = 0;
  for (const at::Tensor& slice : slices) {
    const std::int64_t num_blocks = slice.numel() / kNormBlock;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const double* const of_rank = sums + rank * num_own + begin;
      ordered.insert(ordered.end(), of_rank, of_rank + num_blocks);
    }
    begin += num_blocks;
  }
  return norm_of(ordered);
}

std::vector<WorkPtr> start_parameter_gathers(FlatModel& model, Communicator& comm) {
  std::vector<WorkPtr> gathers;
  for (const FlatUnit& unit : model.layout().units) {
    const Span span("gather", {"unit", static_cast<std::int64_t>(gathers.size())});
    const at::Tensor full = model.params().narrow(0, unit.start, unit.numel);
    if (has_trainable(model.layout(), unit)) {
      gathers.push_back(comm.all_gather(own_slice(full, comm), full));
    } else {
      gathers.push_back(std::make_unique<DoneWork>());
    }
  }
  return gathers;
}

}  // namespace ladder
