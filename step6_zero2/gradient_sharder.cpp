#include "step6_zero2/gradient_sharder.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "step4_bucketed_ddp/gradient_hooks.hpp"
#include "step5_zero1/sharded_optimizer.hpp"

namespace ladder {
namespace {

// A part of a unit that belongs to no tensor: padding, or a frozen one.
struct Gap {
  std::int64_t start = 0, numel = 0;  // in elements, from the unit's start
};

std::vector<Gap> gaps_of(const GradientBucket& unit, const FlatLayout& layout) {
  std::vector<Gap> gaps;
  std::int64_t end = unit.numel;  // of the gap after the tensor; the last tensor comes first
  for (const std::int64_t index : unit.tensors) {
    const FlatTensor& tensor = layout.tensors[static_cast<std::size_t>(index)];
    const std::int64_t start = tensor.start - unit.start;
    gaps.push_back({start + tensor.numel, end - start - tensor.numel});
    end = start;
  }
  gaps.push_back({0, end});
  return gaps;
}

}  // namespace

struct GradientSharder::State {
  struct Unit {
    GradientBucket range;
    at::Tensor shard;  // this rank's slice, a view of grad_shard_
    std::vector<Gap> gaps;
    std::size_t num_waiting = 0;  // tensors without a gradient in this pass
    at::Tensor full;              // [range.numel] from the first gradient until the unit is sent
  };
  struct Leaf {
    std::size_t unit = 0;
    std::int64_t start = 0;     // in its unit
    bool has_gradient = false;  // in this pass
  };
  std::vector<Unit> units_;  // in the order in which they are sent
  std::vector<Leaf> tensors_;
  std::int64_t num_microbatches_ = 0;  // 0: not armed
  std::int64_t num_started_ = 0;       // units sent so far, over all passes
  at::Tensor on_its_way_;              // the full gradient that is being reduced
  WorkPtr reduction_;

  std::vector<NamedTensor> leaves_;
  Communicator& comm_;
  at::Tensor grad_shard_;
  GradientHooks hooks_;

  State(const ShardPlan& plan, std::vector<NamedTensor> leaves, Communicator& comm)
      : leaves_(std::move(leaves)),
        comm_(comm),
        hooks_(leaves_, [this](std::size_t tensor) { on_gradient(tensor); }) {
    const MemoryScope scope(MemoryCategory::kGradients);
    grad_shard_ = at::zeros({plan.numel}, plan.layout.buffer(plan.layout.precision.grads));
    tensors_.resize(leaves_.size());
    for (const GradientBucket& range : plan_unit_buckets(plan.layout)) {
      Unit& unit = units_.emplace_back();
      unit.range = range;
      unit.shard = grad_shard_.narrow(0, range.start / comm.size(), range.numel / comm.size());
      unit.gaps = gaps_of(range, plan.layout);
      for (const std::int64_t index : range.tensors) {
        const auto tensor = static_cast<std::size_t>(index);
        tensors_[tensor] = {units_.size() - 1, plan.layout.tensors[tensor].start - range.start};
      }
    }
  }

  void arm(std::int64_t num_microbatches) {
    check(num_microbatches_ == 0, "rank ", comm_.rank(),
          ": GradientSharder: arm() again without wait()");
    check(num_microbatches >= 1, "rank ", comm_.rank(), ": GradientSharder: arm(", num_microbatches,
          ") expects no backward pass");
    num_microbatches_ = num_microbatches;
    num_started_ = 0;
    for (Unit& unit : units_) unit.num_waiting = unit.range.tensors.size();
    for (Leaf& leaf : tensors_) leaf.has_gradient = false;
  }

  // A backward has put a gradient into this tensor's .grad.
  void on_gradient(std::size_t tensor) {
    if (num_microbatches_ == 0) return;
    Leaf& leaf = tensors_[tensor];
    Unit& unit = units_[leaf.unit];
    check(num_started_ < num_microbatches_ * num_units(), "rank ", comm_.rank(), ": parameter '",
          leaves_[tensor].name, "' received more than the ", num_microbatches_,
          " gradient(s) that arm() announced");
    check(!leaf.has_gradient, "rank ", comm_.rank(), ": parameter '", leaves_[tensor].name,
          "' received another gradient before its unit was complete. ",
          [this] { return describe_missing(); });
    if (!unit.full.defined()) {
      const MemoryScope scope(MemoryCategory::kGradients);
      unit.full = at::empty({unit.range.numel}, grad_shard_.options());
    }
    at::Tensor& grad = leaves_[tensor].tensor.mutable_grad();
    unit.full.narrow(0, leaf.start, grad.numel()).view(grad.sizes()).copy_(grad);
    grad.reset();  // now only the unit's buffer holds the full gradient
    leaf.has_gradient = true;
    if (--unit.num_waiting == 0) start_complete_units();
    if (reduction_) reduction_->test();
  }

  void start_complete_units() {
    while (num_started_ < num_microbatches_ * num_units()) {
      Unit& unit = units_[static_cast<std::size_t>(num_started_ % num_units())];
      if (unit.num_waiting > 0) return;
      finish_unit_on_its_way();
      for (const auto& [start, numel] : unit.gaps) {
        if (numel > 0) unit.full.narrow(0, start, numel).zero_();
      }
      const Span span("bucket", {"bucket", num_started_ % num_units()});
      on_its_way_ = std::exchange(unit.full, at::Tensor());
      reduction_ = start_reduce_scatter(comm_, on_its_way_);
      ++num_started_;
      unit.num_waiting = unit.range.tensors.size();  // for the next pass
      for (const std::int64_t tensor : unit.range.tensors)
        tensors_[static_cast<std::size_t>(tensor)].has_gradient = false;
    }
  }

  void finish_unit_on_its_way() {
    if (!reduction_) return;
    reduction_->wait();
    reduction_.reset();
    Unit& unit = units_[static_cast<std::size_t>((num_started_ - 1) % num_units())];
    const std::int64_t numel = unit.shard.numel();
    unit.shard.add_(on_its_way_.narrow(0, comm_.rank() * numel, numel));
    on_its_way_.reset();
  }

  std::int64_t num_units() const { return static_cast<std::int64_t>(units_.size()); }

  std::string describe_missing() const {
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

  void wait() {
    check(num_microbatches_ > 0, "rank ", comm_.rank(), ": GradientSharder: wait() without arm()");
    check(num_started_ == num_microbatches_ * num_units(), "rank ", comm_.rank(), ": ",
          [this] { return describe_missing(); });
    finish_unit_on_its_way();
    num_microbatches_ = 0;
  }
};

GradientSharder::GradientSharder(const ShardPlan& plan, std::vector<NamedTensor> leaves,
                                 Communicator& comm)
    : state_(std::make_unique<State>(plan, std::move(leaves), comm)) {}

GradientSharder::~GradientSharder() = default;

void GradientSharder::arm(std::int64_t num_microbatches) {
  state_->arm(num_microbatches);
}

void GradientSharder::wait() {
  state_->wait();
}

const at::Tensor& GradientSharder::grad_shard() const {
  return state_->grad_shard_;
}

}  // namespace ladder
