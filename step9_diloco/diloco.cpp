#include "step9_diloco/diloco.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "common/core/memory_ledger.hpp"

namespace ladder {

Diloco::Diloco(FlatModel& model, const DilocoOptions& options, Averager& averager)
    : model_(model),
      options_(options),
      averager_(averager),
      fragments_(plan_fragments(model.layout(), options.num_fragments)),
      outer_{options.outer_lr, options.outer_momentum} {
  check_diloco(options);
  const MemoryScope scope(MemoryCategory::kOptimizer, "outer optimizer");
  global_ = at::zeros_like(model.params());
  velocity_ = at::zeros_like(model.params());
  adopt_parameters();
}

void Diloco::adopt_parameters() {
  const at::NoGradGuard no_grad;
  global_.copy_(model_.params());
}

void Diloco::start_average() {
  const at::NoGradGuard no_grad;
  averager_.form_quorum();  // before anything is read: it may replace this worker's state
  const MemoryScope scope(MemoryCategory::kCommunication, "pseudogradient");
  pseudogradient_ = at::sub(fragment().of(global_), fragment().of(model_.params()));
  averager_.start(pseudogradient_);
}

bool Diloco::finish_round() {
  const at::NoGradGuard no_grad;
  const at::Tensor global = fragment().of(global_), params = fragment().of(model_.params());
  const bool is_agreed = averager_.finish().has_value();
  const at::Tensor average = std::exchange(pseudogradient_, {});
  if (!is_agreed) {
    params.copy_(global);
    return false;
  }
  outer_.step(global, fragment().of(velocity_), average);
  // 0 and 1 exactly: what is kept alone must not be touched, not even the sign of a zero.
  if (options_.alpha == 0) {
    params.copy_(global);
  } else if (options_.alpha < 1) {
    params.mul_(options_.alpha).add_(global, 1 - options_.alpha);
  }
  ++outer_steps_;
  return true;
}

const Fragment& Diloco::fragment() const {
  return fragments_[static_cast<std::size_t>(fragment_of_round(options_, outer_steps_))];
}

}  // namespace ladder
