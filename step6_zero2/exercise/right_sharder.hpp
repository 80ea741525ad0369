// A sharder that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/exercise/grader.hpp"

namespace ladder::step6 {

class RightSharder {
 public:
  RightSharder(const ShardPlan& plan, const std::vector<NamedTensor>& leaves, Communicator& comm)
      : plan_(plan), leaves_(leaves), comm_(comm), received_(leaves.size()) {
    const MemoryScope scope(MemoryCategory::kGradients);
    grad_shard_ = at::zeros({plan.numel}, at::kFloat);
    for (const GradientBucket& range : plan_unit_buckets(plan.layout)) {
      units_.push_back(
          {range, grad_shard_.narrow(0, range.start / comm.size(), range.numel / comm.size())});
      for (const std::int64_t t : range.tensors)
        set_hook(t, std::make_unique<Hook>(*this, t, units_.size() - 1));
    }
  }
  virtual ~RightSharder() {
    for (const Reduction& reduction : on_their_way_) reduction.work->wait();
    for (const Unit& unit : units_) {
      for (const std::int64_t t : unit.range.tensors) {
        if (removes_hooks_) set_hook(t, nullptr);
      }
    }
  }
  RightSharder(const RightSharder&) = delete;
  RightSharder& operator=(const RightSharder&) = delete;

  const at::Tensor& grad_shard() const { return grad_shard_; }

  virtual void arm(std::int64_t num_microbatches) {
    check_may_arm(num_microbatches);
    num_microbatches_ = num_microbatches;
    num_started_ = 0;
    received_.assign(received_.size(), 0);
  }
  virtual void wait() {
    check_is_armed();
    check_is_complete();
    finish();
    num_microbatches_ = 0;
  }

 protected:
  struct Unit {
    GradientBucket range;
    at::Tensor shard;
    at::Tensor full;
  };
  struct Reduction {
    Unit* unit;
    at::Tensor full;
    WorkPtr work;
  };

  virtual void on_gradient(std::int64_t tensor, Unit& unit) {
    if (num_microbatches_ == 0) return;
    check_not_too_many(tensor);
    take(tensor, unit);
    ++received(tensor);
    if (is_complete(unit)) start_complete();
    poll();
  }
  virtual void take(std::int64_t tensor, Unit& unit) {
    if (!unit.full.defined()) unit.full = make_buffer(unit.range.numel);
    at::Tensor& grad = leaf(tensor).mutable_grad();
    put(unit.full.narrow(0, place(tensor).start - unit.range.start, grad.numel()), grad);
    release(grad);
  }
  virtual void put(at::Tensor place, const at::Tensor& grad) { place.copy_(grad); }
  virtual void release(at::Tensor& grad) { grad.reset(); }
  virtual at::Tensor make_buffer(std::int64_t numel) {
    const MemoryScope scope(MemoryCategory::kGradients);
    return at::zeros({numel}, at::kFloat);
  }

  // Of each tensor of a unit, when it leaves.
  virtual std::int64_t num_gradients() { return 1; }
  std::int64_t num_units() { return static_cast<std::int64_t>(units_.size()); }
  std::int64_t num_departures() { return num_microbatches_ / num_gradients() * num_units(); }
  virtual bool is_complete(const Unit& unit) {
    return std::all_of(unit.range.tensors.begin(), unit.range.tensors.end(),
                       [&](std::int64_t t) { return received(t) == num_gradients(); });
  }
  virtual void start_complete() {
    while (num_started_ < num_departures() && is_complete(next_unit())) start(next_unit());
  }
  virtual void start(Unit& unit) {
    make_room();
    WorkPtr work = reduce(unit.full);
    on_their_way_.push_back({&unit, std::exchange(unit.full, at::Tensor()), std::move(work)});
    ++num_started_;
    for (const std::int64_t t : unit.range.tensors) received(t) = 0;
  }
  virtual void make_room() { finish(); }
  virtual WorkPtr reduce(const at::Tensor& full) { return start_reduce_scatter(comm_, full); }
  virtual void poll() {
    for (const Reduction& reduction : on_their_way_) reduction.work->test();
  }
  virtual void finish() {
    for (Reduction& reduction : std::exchange(on_their_way_, {})) {
      await(reduction);
      const std::int64_t numel = reduction.unit->shard.numel();
      add(reduction.unit->shard, reduction.full.narrow(0, comm_.rank() * numel, numel));
    }
  }
  virtual void await(Reduction& reduction) { reduction.work->wait(); }
  virtual void add(at::Tensor shard, const at::Tensor& slice) { shard.add_(slice); }

  virtual void check_may_arm(std::int64_t num_microbatches) {
    check(num_microbatches_ == 0, "rank ", comm_.rank(), ": arm() without wait()");
    check(num_microbatches >= 1, "rank ", comm_.rank(), ": arm(", num_microbatches, ")");
  }
  virtual void check_is_armed() {
    check(num_microbatches_ > 0, "rank ", comm_.rank(), ": wait() without arm()");
  }
  virtual void check_not_too_many(std::int64_t tensor) {
    check(num_started_ < num_departures() && received(tensor) < num_gradients(), "rank ",
          comm_.rank(), ": '", place(tensor).name, "' has too many, or another one too few");
  }
  virtual void check_is_complete() {
    if (num_started_ == num_departures()) return;
    for (const std::int64_t t : next_unit().range.tensors)
      check(received(t) > 0, "rank ", comm_.rank(), ": '", place(t).name,
            "' has too few gradients");
    throw CheckError("a complete unit has not left");
  }

  Unit& next_unit() { return units_[static_cast<std::size_t>(num_started_ % num_units())]; }
  std::int64_t& received(std::int64_t tensor) {
    return received_[static_cast<std::size_t>(tensor)];
  }
  const FlatTensor& place(std::int64_t tensor) const {
    return plan_.layout.tensors[static_cast<std::size_t>(tensor)];
  }
  const at::Tensor& leaf(std::int64_t tensor) const {
    return leaves_[static_cast<std::size_t>(tensor)].tensor;
  }

  ShardPlan plan_;
  std::vector<NamedTensor> leaves_;
  Communicator& comm_;
  at::Tensor grad_shard_;
  std::vector<Unit> units_;             // in the order in which they leave
  std::vector<std::int64_t> received_;  // gradients since its unit last left, by tensor
  std::int64_t num_microbatches_ = 0;   // 0: not armed
  std::int64_t num_started_ = 0;
  std::vector<Reduction> on_their_way_;
  bool removes_hooks_ = true;

 private:
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(RightSharder& the_owner, std::int64_t the_tensor, std::size_t the_unit)
        : owner(the_owner), tensor(the_tensor), unit(the_unit) {}
    void operator()(const at::Tensor& /*parameter*/) override {
      owner.on_gradient(tensor, owner.units_[unit]);
    }
    RightSharder& owner;
    std::int64_t tensor;
    std::size_t unit;
  };
  void set_hook(std::int64_t tensor, std::unique_ptr<Hook> hook) const {
    torch::autograd::impl::set_post_acc_grad_hooks(leaf(tensor), std::move(hook));
  }
};

}  // namespace ladder::step6
