// A round that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <utility>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "step9_diloco/exercise/grader.hpp"

namespace ladder::step9 {

class RightDiloco {
 public:
  RightDiloco(FlatModel& model, FlatModel& global, const DilocoOptions& options, Averager& averager)
      : model_(model),
        global_(global),
        options_(options),
        averager_(averager),
        fragments_(plan_fragments(global.layout(), options.num_fragments)),
        outer_{options.outer_lr, options.outer_momentum},
        velocity_(at::zeros_like(global.params())) {}
  virtual ~RightDiloco() = default;
  RightDiloco(const RightDiloco&) = delete;
  RightDiloco& operator=(const RightDiloco&) = delete;

  virtual void start_average() {
    const at::NoGradGuard no_grad;
    {
      const MemoryScope scope(category());
      pseudogradient_ = distance();
    }
    averager_.start(pseudogradient_);
    is_in_flight_ = true;
  }
  virtual bool finish_round() {
    const at::NoGradGuard no_grad;
    if (!has_started()) start_average();
    wait();
    const at::Tensor average = take_average();
    is_agreed_ ? take_outer_step(average) : give_up(average);
    return is_agreed_;
  }
  void settle() {
    if (is_in_flight_) is_agreed_ = averager_.finish().has_value();
    is_in_flight_ = false;
  }

  Diloco::Round round() const {
    return {outer_steps_, !is_in_flight_ && is_agreed_ ? pseudogradient_ : at::Tensor()};
  }
  virtual void restore(const Diloco::Round& round) {
    outer_steps_ = round.outer_steps;
    pseudogradient_ = round.pseudogradient;
    is_agreed_ = pseudogradient_.defined();
    is_restored_ = true;
  }
  const at::Tensor& velocity() const { return velocity_; }

 protected:
  virtual MemoryCategory category() { return MemoryCategory::kGradients; }
  virtual at::Tensor distance() { return global() - local(); }
  virtual bool has_started() { return pseudogradient_.defined(); }
  virtual void wait() { settle(); }
  virtual at::Tensor take_average() { return std::exchange(pseudogradient_, {}); }

  virtual void take_outer_step(const at::Tensor& average) {
    step_global(average);
    mix();
    ++outer_steps_;
  }
  virtual void step_global(const at::Tensor& average) {
    outer_.step(global(), momentum(), average);
  }
  virtual at::Tensor momentum() { return fragment().of(velocity_); }
  virtual void mix() {
    if (kept() == 0) local().copy_(global());
    if (kept() > 0 && kept() < 1) local().mul_(kept()).add_(global(), 1 - kept());
  }
  virtual double kept() { return options_.alpha; }

  virtual void give_up(const at::Tensor& /*meaningless*/) { local().copy_(global()); }

  virtual const Fragment& fragment() {
    return fragments_[static_cast<std::size_t>(outer_steps_) % fragments_.size()];
  }
  at::Tensor global() { return fragment().of(global_.params()); }  // of this round
  at::Tensor local() { return fragment().of(model_.params()); }

  FlatModel& model_;
  FlatModel& global_;
  DilocoOptions options_;
  Averager& averager_;
  std::vector<Fragment> fragments_;
  OuterSgd outer_;
  at::Tensor velocity_, pseudogradient_;
  bool is_in_flight_ = false, is_agreed_ = false, is_restored_ = false;
  std::int64_t outer_steps_ = 0;
};

}  // namespace ladder::step9
