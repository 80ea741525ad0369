#include "step9_diloco/diloco.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/core/trace.hpp"
#include "step9_diloco/outer_sgd.hpp"

namespace ladder {

struct Diloco::State {
  at::Tensor pseudogradient_;  // from the start of an average to the round's end
  bool is_in_flight_ = false;
  bool is_agreed_ = false;  // the last one in flight has not failed
  std::int64_t outer_steps_ = 0;
  bool is_restored_ = false;

  FlatModel& model_;
  FlatModel& global_;
  DilocoOptions options_;
  Averager& averager_;
  std::vector<Fragment> fragments_;
  OuterSgd outer_;
  at::Tensor velocity_;

  State(FlatModel& model, FlatModel& global, const DilocoOptions& options, Averager& averager)
      : model_(model),
        global_(global),
        options_(options),
        averager_(averager),
        fragments_(plan_fragments(global.layout(), options.num_fragments)),
        outer_{options.outer_lr, options.outer_momentum} {
    const MemoryScope scope(MemoryCategory::kOptimizer);
    velocity_ = at::zeros_like(global.params());
  }

  void adopt_global() {
    const at::NoGradGuard no_grad;
    if (!is_restored_) model_.params().copy_(global_.params());
  }

  void start_average() {
    const Span span("start average", {"round", outer_steps_});
    const at::NoGradGuard no_grad;
    const MemoryScope scope(MemoryCategory::kGradients);
    const at::Tensor global = fragment().of(global_.params());
    const at::Tensor local = fragment().of(model_.params());
    // Without masters, parameters have 16 bits, and at::sub() would copy them.
    const bool is_narrow = is_16_bit(local.scalar_type());
    pseudogradient_ = is_narrow ? local.to(at::kFloat).neg_().add_(global) : at::sub(global, local);
    averager_.start(pseudogradient_);
    is_in_flight_ = true;
  }

  bool is_started() const { return pseudogradient_.defined(); }

  bool finish_round() {
    const Span span("outer step", {"round", outer_steps_});
    const at::NoGradGuard no_grad;
    if (!is_started()) start_average();
    settle();
    const at::Tensor average = std::exchange(pseudogradient_, {});
    const at::Tensor global = fragment().of(global_.params());
    const at::Tensor local = fragment().of(model_.params());
    if (!is_agreed_) {
      local.copy_(global);
      return false;
    }
    outer_.step(global, fragment().of(velocity_), average);
    // 0 and 1 exactly: what is kept alone must not be touched, not even the sign of a zero.
    if (options_.alpha == 0) {
      local.copy_(global);
    } else if (options_.alpha < 1) {
      local.mul_(options_.alpha).add_(global, 1 - options_.alpha);
    }
    ++outer_steps_;
    return true;
  }

  const Fragment& fragment() const {
    return fragments_[static_cast<std::size_t>(fragment_of_round(options_, outer_steps_))];
  }

  // ---- For checkpoints --------------------------------------------------------------------------

  void settle() {
    if (!is_in_flight_) return;
    is_agreed_ = averager_.finish().has_value();
    is_in_flight_ = false;
  }

  Round round() const {
    return {outer_steps_, !is_in_flight_ && is_agreed_ ? pseudogradient_ : at::Tensor()};
  }

  void restore(const Round& round) {
    outer_steps_ = round.outer_steps;
    pseudogradient_ = round.pseudogradient;
    is_agreed_ = pseudogradient_.defined();
    is_restored_ = true;
  }
};

Diloco::Diloco(FlatModel& model, FlatModel& global, const DilocoOptions& options,
               Averager& averager)
    : state_(std::make_unique<State>(model, global, options, averager)) {}

Diloco::~Diloco() = default;

void Diloco::adopt_global() {
  state_->adopt_global();
}

void Diloco::start_average() {
  state_->start_average();
}

bool Diloco::is_started() const {
  return state_->is_started();
}

bool Diloco::finish_round() {
  return state_->finish_round();
}

void Diloco::settle() {
  state_->settle();
}

Diloco::Round Diloco::round() const {
  return state_->round();
}

void Diloco::restore(const Round& round) {
  state_->restore(round);
}

const at::Tensor& Diloco::velocity() const {
  return state_->velocity_;
}

const FlatLayout& Diloco::layout() const {
  return state_->global_.layout();
}

const std::vector<Fragment>& Diloco::fragments() const {
  return state_->fragments_;
}

}  // namespace ladder
