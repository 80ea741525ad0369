// Exercise of step 6: reduce-scatter each unit's gradients during backward, and let go of them.
//
// The hooks are set for you: hooks_ calls on_gradient(tensor) each time a backward has put a gradient
// into that tensor's .grad. units_ are in the order in which they leave; gaps say which parts of a
// unit belong to no tensor. Write the rest as step6_zero2/gradient_sharder.hpp describes it, then:
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
    std::int64_t end = range.numel;  // of the gap behind the tensor: the last one comes first
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
  // How many tensors must each unit wait for before it may leave, and how many units will have left
  // when all passes are over?
  static_cast<void>(num_microbatches);
  not_implemented("step6_zero2: GradientSharder::arm()");
}

void GradientSharder::on_gradient(std::size_t tensor) {
  // Move it out of .grad into the unit's buffer, which the first one makes (its MemoryScope is that
  // of gradients). What must .grad be afterwards? Then count, and let the transport move on.
  static_cast<void>(tensor);
  not_implemented("step6_zero2: GradientSharder::on_gradient()");
}

void GradientSharder::start_complete_units() {
  // start_reduce_scatter(comm_, full) starts a unit's sum, in the same order on all ranks. Who may
  // still be on its way? And what is in the gaps of a buffer that at::empty() made?
  not_implemented("step6_zero2: GradientSharder::start_complete_units()");
}

void GradientSharder::finish_unit_on_its_way() {
  // Afterwards the own slice of on_its_way_ is part of the unit's shard, and the buffer is gone.
  not_implemented("step6_zero2: GradientSharder::finish_unit_on_its_way()");
}

std::string GradientSharder::describe_missing() const {
  const Unit& unit = units_[static_cast<std::size_t>(num_started_ % num_units())];
  for (const std::int64_t index : unit.range.tensors) {
    const auto tensor = static_cast<std::size_t>(index);
    if (tensors_[tensor].has_gradient) continue;
    return concat("Parameter '", leaves_[tensor].name, "' has got ", num_started_ / num_units(),
                  " of ", num_microbatches_,
                  " gradients: it took no part in a backward pass. Freeze it (requires_grad "
                  "false), or use it on every rank");
  }
  const auto first = static_cast<std::size_t>(unit.range.tensors.front());
  return concat("The unit of '", leaves_[first].name, "' has all its gradients and has not left");
}

void GradientSharder::wait() {
  // What if a unit never became complete? Waiting for it would be for ever. describe_missing() has
  // the words.
  not_implemented("step6_zero2: GradientSharder::wait()");
}

}  // namespace ladder
