// Sharders that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <ATen/ops/empty.h>

#include "step6_zero2/exercise/right_sharder.hpp"

namespace ladder::step6 {

struct WrongSharder : RightSharder {
  using RightSharder::RightSharder;
};

// ---- where gradients are

struct KeepsGrad : WrongSharder {
  using WrongSharder::WrongSharder;
  void release(at::Tensor& grad) override { grad.zero_(); }
};
struct GapsNotZeroed : WrongSharder {
  using WrongSharder::WrongSharder;
  at::Tensor make_buffer(std::int64_t numel) override {
    const MemoryScope scope(MemoryCategory::kGradients);
    return at::empty({numel}, at::kFloat);
  }
};
struct NotCounted : WrongSharder {
  using WrongSharder::WrongSharder;
  at::Tensor make_buffer(std::int64_t numel) override { return at::zeros({numel}, at::kFloat); }
};
struct Overwrites : WrongSharder {
  using WrongSharder::WrongSharder;
  void add(at::Tensor shard, const at::Tensor& slice) override { shard.copy_(slice); }
};
struct AllReduces : WrongSharder {
  using WrongSharder::WrongSharder;
  WorkPtr reduce(const at::Tensor& full) override { return comm_.all_reduce(full); }
};

// ---- when a unit leaves

struct LeavesAtFirstGradient : WrongSharder {
  using WrongSharder::WrongSharder;
  bool is_complete(const Unit& unit) override {
    return std::any_of(unit.range.tensors.begin(), unit.range.tensors.end(),
                       [&](std::int64_t t) { return received(t) == 1; });
  }
  void check_not_too_many(std::int64_t /*tensor*/) override {}
};
struct AddsMicrobatchesFirst : WrongSharder {
  using WrongSharder::WrongSharder;
  std::int64_t num_gradients() override { return num_microbatches_; }
  void put(at::Tensor place, const at::Tensor& grad) override { place.add_(grad); }
};
struct OnlyInWait : AddsMicrobatchesFirst {
  using AddsMicrobatchesFirst::AddsMicrobatchesFirst;
  void start_complete() override {}
  void check_is_complete() override {
    AddsMicrobatchesFirst::start_complete();
    AddsMicrobatchesFirst::check_is_complete();
  }
};
struct OnlyLastMicrobatch : WrongSharder {
  using WrongSharder::WrongSharder;
  std::int64_t num_gradients() override { return num_microbatches_; }
};
struct InReadyOrder : WrongSharder {
  using WrongSharder::WrongSharder;
  void start_complete() override {
    for (Unit& unit : units_) {
      if (is_complete(unit)) start(unit);
    }
  }
};

// ---- what is on its way

struct SeveralOnTheirWay : WrongSharder {
  using WrongSharder::WrongSharder;
  void make_room() override {}
};
struct FreesEarly : WrongSharder {
  using WrongSharder::WrongSharder;
  void poll() override {
    if (!on_their_way_.empty() && on_their_way_.front().work->test()) finish();
  }
};
struct WaitsInHook : WrongSharder {
  using WrongSharder::WrongSharder;
  void start(Unit& unit) override {
    WrongSharder::start(unit);
    poll();
    finish();
  }
};
struct NeverPolls : WrongSharder {
  using WrongSharder::WrongSharder;
  void poll() override {}
};
struct PollsWhenOneStarts : NeverPolls {
  using NeverPolls::NeverPolls;
  void start(Unit& unit) override {
    NeverPolls::start(unit);
    WrongSharder::poll();
  }
};
struct NeverWaits : WrongSharder {
  using WrongSharder::WrongSharder;
  ~NeverWaits() override {
    for (const WorkPtr& work : works) work->wait();
  }
  void await(Reduction& reduction) override { works.push_back(std::move(reduction.work)); }
  std::vector<WorkPtr> works;
};

// ---- armed or not

struct AlwaysArmed : WrongSharder {
  using WrongSharder::WrongSharder;
  void on_gradient(std::int64_t tensor, Unit& unit) override {
    if (num_microbatches_ == 0) arm(1);
    WrongSharder::on_gradient(tensor, unit);
  }
};
struct StaysArmed : WrongSharder {
  using WrongSharder::WrongSharder;
  void wait() override {
    const std::int64_t announced = num_microbatches_;
    WrongSharder::wait();
    num_microbatches_ = announced;
    is_over = true;
  }
  void check_may_arm(std::int64_t num_microbatches) override {
    if (std::exchange(is_over, false)) num_microbatches_ = 0;
    WrongSharder::check_may_arm(num_microbatches);
  }
  bool is_over = false;
};

// ---- what is refused, and what is not

struct TripsOverTheFrozen : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_is_complete() override {
    for (const NamedTensor& leaf : leaves_)
      check(leaf.tensor.requires_grad(), "rank ", comm_.rank(), ": '", leaf.name, "'");
    WrongSharder::check_is_complete();
  }
};
struct AcceptsTooFew : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_is_complete() override {}
};
struct NamesTheUnitsLast : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_is_complete() override {
    check(num_started_ == num_departures(), "rank ", comm_.rank(), ": '",
          place(next_unit().range.tensors.back()).name, "'");
  }
};
struct NamesNoRank : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_is_complete() override {
    check(num_started_ == num_departures(), "'", place(next_unit().range.tensors[0]).name, "'");
  }
};
struct AcceptsTooMany : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_not_too_many(std::int64_t /*tensor*/) override {}
};
struct WaitsUnarmed : WrongSharder {
  using WrongSharder::WrongSharder;
  void wait() override {
    if (num_microbatches_ > 0) WrongSharder::wait();
  }
};
struct ArmsTwice : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_may_arm(std::int64_t num_microbatches) override {
    num_microbatches_ = 0;
    WrongSharder::check_may_arm(num_microbatches);
  }
};
struct ArmsForNothing : WrongSharder {
  using WrongSharder::WrongSharder;
  void check_may_arm(std::int64_t /*num_microbatches*/) override { WrongSharder::check_may_arm(1); }
};
struct LeavesItsHooks : WrongSharder {
  using WrongSharder::WrongSharder;
  ~LeavesItsHooks() override { removes_hooks_ = false; }
};

}  // namespace ladder::step6
