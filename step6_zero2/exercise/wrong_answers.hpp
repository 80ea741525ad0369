// Sharders that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/exercise/grader.hpp"

namespace ladder::step6 {

enum class Mistake {
  kKeepsGrad,
  kOnlyInWait,
  kAllReduce,
  kOnlyLastMicrobatch,
  kAccumulatesFirst,
  kOverwrites,
  kInReadyOrder,
  kSeveralOnTheirWay,
  kWaitsInHook,
  kNeverPolls,
  kNeverWaits,
  kGapsNotZeroed,
  kNotCounted,
  kIgnoresUnused,
  kAlwaysArmed,
};

// A sharder with a mistake in it.
class WrongSharder {
 public:
  WrongSharder(Mistake mistake, const ShardPlan& plan, std::vector<NamedTensor> leaves,
               Communicator& comm)
      : mistake_(mistake), leaves_(std::move(leaves)), comm_(comm) {
    const MemoryScope scope(MemoryCategory::kGradients);
    grad_shard_ = at::zeros({plan.numel}, at::kFloat);
    for (const GradientBucket& range : plan_unit_buckets(plan.layout)) {
      units_.push_back(
          {range, grad_shard_.narrow(0, range.start / comm.size(), range.numel / comm.size())});
      for (const std::int64_t tensor : range.tensors) {
        const std::int64_t start =
            plan.layout.tensors[static_cast<std::size_t>(tensor)].start - range.start;
        set_hook(tensor, std::make_unique<Hook>(*this, units_.size() - 1, start));
      }
    }
  }
  ~WrongSharder() {
    for (const Reduction& reduction : on_their_way_) reduction.work->wait();
    for (const Reduction& reduction : never_waited_for_) reduction.work->wait();
    for (const Unit& unit : units_) {
      for (const std::int64_t tensor : unit.range.tensors) set_hook(tensor, nullptr);
    }
  }

  const at::Tensor& grad_shard() const { return grad_shard_; }

  void arm(std::int64_t num_microbatches) {
    num_microbatches_ = num_microbatches;
    num_started_ = 0;
    for (Unit& unit : units_) unit.num_ready = unit.num_passes = 0;
  }

  void wait() {
    if (mistake_ == Mistake::kOnlyInWait || mistake_ == Mistake::kIgnoresUnused) {
      const auto passes = mistake_ == Mistake::kOnlyInWait ? 1 : num_microbatches_;
      while (num_started_ < units_.size() * static_cast<std::size_t>(passes)) start(next_unit());
    }
    for (const Unit& unit : units_) {
      check(unit.num_ready == 0, "rank ", comm_.rank(), ": '", leaf(unit.range.tensors[0]).name,
            "' or a neighbour has no gradient");
    }
    finish();
    num_microbatches_ = 0;
  }

 private:
  struct Unit {
    GradientBucket range;
    at::Tensor shard;
    std::size_t num_ready = 0;
    std::int64_t num_passes = 0;
    at::Tensor full;
  };
  struct Reduction {
    Unit* unit;
    at::Tensor full;
    WorkPtr work;
  };
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(WrongSharder& the_owner, std::size_t the_unit, std::int64_t the_start)
        : owner(the_owner), unit(the_unit), start(the_start) {}
    void operator()(const at::Tensor& parameter) override {
      owner.on_gradient(owner.units_[unit], start, parameter.mutable_grad());
    }
    WrongSharder& owner;
    std::size_t unit;
    std::int64_t start;
  };

  const NamedTensor& leaf(std::int64_t tensor) const {
    return leaves_[static_cast<std::size_t>(tensor)];
  }
  void set_hook(std::int64_t tensor, std::unique_ptr<Hook> hook) const {
    torch::autograd::impl::set_post_acc_grad_hooks(leaf(tensor).tensor, std::move(hook));
  }
  Unit& next_unit() { return units_[num_started_ % units_.size()]; }

  void on_gradient(Unit& unit, std::int64_t start_in_unit, at::Tensor& grad) {
    if (num_microbatches_ == 0 && mistake_ != Mistake::kAlwaysArmed) return;
    if (!unit.full.defined()) unit.full = make_buffer(unit.range.numel);
    const at::Tensor place = unit.full.narrow(0, start_in_unit, grad.numel());
    const bool is_one_sum =
        mistake_ == Mistake::kAccumulatesFirst || mistake_ == Mistake::kOnlyInWait;
    if (is_one_sum && unit.num_passes > 0) {
      place.add_(grad);
    } else {
      place.copy_(grad);
    }
    if (mistake_ == Mistake::kKeepsGrad) {
      grad.zero_();
    } else {
      grad.reset();
    }
    ++unit.num_ready;
    if (is_complete(unit)) {
      const bool is_last = ++unit.num_passes == num_microbatches_;
      const bool waits_for_last = is_one_sum || mistake_ == Mistake::kOnlyLastMicrobatch;
      if ((waits_for_last && !is_last) || mistake_ == Mistake::kOnlyInWait) {
        unit.num_ready = 0;
        if (!is_one_sum) unit.full.reset();
      } else if (mistake_ == Mistake::kInReadyOrder) {
        start(unit);
      } else {
        while (is_complete(next_unit())) start(next_unit());
      }
    }
    if (mistake_ != Mistake::kNeverPolls && !on_their_way_.empty())
      on_their_way_.back().work->test();
  }

  at::Tensor make_buffer(std::int64_t numel) const {
    const MemoryScope scope(mistake_ == Mistake::kNotCounted ? MemoryCategory::kActivations
                                                             : MemoryCategory::kGradients);
    return mistake_ == Mistake::kGapsNotZeroed ? at::empty({numel}, at::kFloat)
                                               : at::zeros({numel}, at::kFloat);
  }

  static bool is_complete(const Unit& unit) { return unit.num_ready == unit.range.tensors.size(); }

  void start(Unit& unit) {
    if (mistake_ != Mistake::kSeveralOnTheirWay) finish();
    if (!unit.full.defined()) unit.full = make_buffer(unit.range.numel);
    WorkPtr work = mistake_ == Mistake::kAllReduce ? comm_.all_reduce(unit.full)
                                                   : start_reduce_scatter(comm_, unit.full);
    on_their_way_.push_back({&unit, std::exchange(unit.full, at::Tensor()), std::move(work)});
    unit.num_ready = 0;
    ++num_started_;
    if (mistake_ == Mistake::kWaitsInHook) finish();
  }

  void finish() {
    for (Reduction& reduction : std::exchange(on_their_way_, {})) {
      if (mistake_ != Mistake::kNeverWaits) reduction.work->wait();
      const std::int64_t numel = reduction.unit->shard.numel();
      const at::Tensor slice = reduction.full.narrow(0, comm_.rank() * numel, numel);
      if (mistake_ == Mistake::kOverwrites) {
        reduction.unit->shard.copy_(slice);
      } else {
        reduction.unit->shard.add_(slice);
      }
      if (mistake_ == Mistake::kNeverWaits) never_waited_for_.push_back(std::move(reduction));
    }
  }

  Mistake mistake_;
  std::vector<NamedTensor> leaves_;
  Communicator& comm_;
  at::Tensor grad_shard_;
  std::vector<Unit> units_;
  std::int64_t num_microbatches_ = 0;
  std::size_t num_started_ = 0;
  std::vector<Reduction> on_their_way_;
  std::vector<Reduction> never_waited_for_;
};

inline MakeSharder make_wrong(Mistake mistake) {
  return
      [mistake](const ShardPlan& plan, const std::vector<NamedTensor>& leaves, Communicator& comm) {
        const auto wrong = std::make_shared<WrongSharder>(mistake, plan, leaves, comm);
        return SharderAttempt{[wrong](std::int64_t m) { wrong->arm(m); },
                              [wrong] { wrong->wait(); }, wrong->grad_shard()};
      };
}

// The grader's units have 1 to 5 times 1024 N elements. In the first tensor rank r's gradient of
// microbatch j is (r + 1)(j + 1).
inline std::vector<WrongAnswer<Mistake>> wrong_answers(int num_ranks) {
  const std::int64_t ranks = num_ranks * (num_ranks + 1) / 2;
  const std::int64_t shard_bytes = 4 * 15 * 1024;
  const auto peak = [&](std::int64_t multiples) {
    return concat("that two microbatches hold is ", shard_bytes + 4 * multiples * 1024 * num_ranks,
                  ", not ", shard_bytes + 4 * 9 * 1024 * num_ranks);
  };
  const std::string shard = "the gradient shard after step 1 of three microbatches is ";
  return {
      {"keeps .grad", Mistake::kKeepsGrad, 1, "held when the last gradient is computed is "},
      {"only in wait", Mistake::kOnlyInWait, 1, peak(15)},
      {"all_reduce", Mistake::kAllReduce, 2, "bytes sent by step 1 of three microbatches is "},
      {"only the last microbatch", Mistake::kOnlyLastMicrobatch, 1,
       "reduce_scatters of step 1 of three microbatches is 5, not 15"},
      {"microbatches first, then ranks", Mistake::kAccumulatesFirst, 2, shard},
      {"overwrites", Mistake::kOverwrites, 1, concat(shard, 3 * ranks, ", not ", 6 * ranks)},
      {"in ready order", Mistake::kInReadyOrder, 1,
       concat("is reduce_scatter of ", 3 * 1024 * num_ranks, " elements, not reduce_scatter of ",
              5 * 1024 * num_ranks)},
      {"in each rank's own ready order", Mistake::kInReadyOrder, 2,
       "the ranks do not do the same, and would wait for each other for ever"},
      {"several on their way", Mistake::kSeveralOnTheirWay, 1, peak(30)},
      {"waits in the hook", Mistake::kWaitsInHook, 1,
       "when the last gradient is computed is 0, not 1"},
      {"never polls", Mistake::kNeverPolls, 1, "no hook calls test()"},
      {"never waits", Mistake::kNeverWaits, 1, "were waited for when wait() returns is 0, not 10"},
      {"gaps not zeroed", Mistake::kGapsNotZeroed, 1, "not 0 (element 10; "},
      {"a buffer that nobody counts", Mistake::kNotCounted, 1, peak(0)},
      {"ignores the unused", Mistake::kIgnoresUnused, 1,
       "'unit2.long' got no gradient: wait() says nothing, a CheckError is wanted"},
      {"always armed", Mistake::kAlwaysArmed, 1, "of a backward without arm() is 5, not 0"},
  };
}

}  // namespace ladder::step6
