// Exercise of step 6: reduce-scatter each unit's gradients during backward, and free them.
//
// The hooks are set for you: hooks_ calls on_gradient(tensor) each time a backward has put a
// gradient into that tensor's .grad. units_ are in the order in which they are sent; gaps are the
// parts of a unit that belong to no tensor. Write the rest as step6_zero2/gradient_sharder.hpp
// describes it, then run:
//   ./ladder exercise step6_zero2
#include "step6_zero2/gradient_sharder.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "step5_zero1/sharded_optimizer.hpp"

namespace ladder {

GradientSharder::GradientSharder(const ShardPlan& plan, std::vector<NamedTensor> leaves,
                                 Communicator& comm)
    : leaves_(std::move(leaves)),
      comm_(comm),
      tensors_(leaves_.size()),
      hooks_(leaves_, [this](std::size_t tensor) { on_gradient(tensor); }) {
  const MemoryScope scope(MemoryCategory::kGradients);
  grad_shard_ = at::zeros({plan.numel}, at::kFloat);
  for (const GradientBucket& range : plan_unit_buckets(plan.layout)) {
    Unit& unit = units_.emplace_back();
    unit.range = range;
    unit.shard = grad_shard_.narrow(0, range.start / comm.size(), range.numel / comm.size());
    std::int64_t end = range.numel;  // of the gap after the tensor; the last tensor comes first
    for (const std::int64_t index : range.tensors) {
      const FlatTensor& tensor = plan.layout.tensors[static_cast<std::size_t>(index)];
      const std::int64_t start = tensor.start - range.start;
      unit.gaps.emplace_back(start + tensor.numel, end - start - tensor.numel);
      end = start;
      tensors_[static_cast<std::size_t>(index)] = {units_.size() - 1, start};
    }
    unit.gaps.emplace_back(0, end);
  }
}

void GradientSharder::arm(std::int64_t num_microbatches) {
  // How many tensors must each unit wait for before it may be sent? And how many units will have
  // been sent when all passes are over?
  static_cast<void>(num_microbatches);
  not_implemented("step6_zero2: GradientSharder::arm()");
}

void GradientSharder::on_gradient(std::size_t tensor) {
  // Move the gradient out of .grad into the unit's buffer, which the first gradient allocates (in a
  // MemoryScope of kGradients). What must .grad be afterwards? Then count, and let the transport
  // make progress.
  static_cast<void>(tensor);
  not_implemented("step6_zero2: GradientSharder::on_gradient()");
}

void GradientSharder::start_complete_units() {
  // start_reduce_scatter(comm_, full) starts a unit's sum. All ranks must start them in the same
  // order. Which unit may still be in flight? And what do the gaps of an at::empty() buffer hold?
  not_implemented("step6_zero2: GradientSharder::start_complete_units()");
}

void GradientSharder::finish_unit_on_its_way() {
  // Afterwards this rank's slice of on_its_way_ has been added to the unit's shard, and the buffer
  // is freed.
  not_implemented("step6_zero2: GradientSharder::finish_unit_on_its_way()");
}

std::string GradientSharder::describe_missing() const {
  const Unit& unit = units_[static_cast<std::size_t>(num_started_ % num_units())];
  for (const std::int64_t index : unit.range.tensors) {
    const auto tensor = static_cast<std::size_t>(index);
    if (tensors_[tensor].has_gradient) continue;
    return concat("Parameter '", leaves_[tensor].name, "' received ", num_started_ / num_units(),
                  " of ", num_microbatches_,
                  " gradients: it took no part in a backward pass. Freeze it (requires_grad "
                  "false), or use it on every rank");
  }
  const auto first = static_cast<std::size_t>(unit.range.tensors.front());
  return concat("The unit of '", leaves_[first].name, "' has all its gradients but was not sent");
}

void GradientSharder::wait() {
  // What if a unit never became complete? Waiting for it would take forever. describe_missing()
  // returns the message.
  not_implemented("step6_zero2: GradientSharder::wait()");
}

}  // namespace ladder
