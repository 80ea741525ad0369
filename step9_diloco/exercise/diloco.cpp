// Exercise of step 9, part 2: a round of DiLoCo.
//
// Fragments, the outer optimizer and checkpoints are written. Write start_average() and finish_round()
// as step9_diloco/diloco.hpp describes them, then run:
//   ./ladder exercise step9_diloco
// Part 1 is in averager.cpp; this part is graded without it.
#include "step9_diloco/diloco.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {

Diloco::Diloco(FlatModel& model, FlatModel& global, const DilocoOptions& options,
               Averager& averager)
    : model_(model),
      global_(global),
      options_(options),
      averager_(averager),
      fragments_(plan_fragments(global.layout(), options.num_fragments)),
      outer_{options.outer_lr, options.outer_momentum} {
  check_diloco(options);
  const MemoryScope scope(MemoryCategory::kOptimizer);
  velocity_ = at::zeros_like(global.params());
}

void Diloco::adopt_global() {
  const at::NoGradGuard no_grad;
  if (!is_restored_) model_.params().copy_(global_.params());
}

void Diloco::start_average() {
  averager_.form_quorum();  // before anything is read: it may replace this worker's state
  // fragment().of(a flat buffer) is the round's part of it, as a view; the buffers are the params() of
  // the two models, and velocity_. The outer optimizer subtracts: which way round is the difference?
  // The worker's parameters may have 16 bits: which type does the difference get?
  // The worker goes on training its parameters, so what is in flight needs memory of its own, which
  // counts as gradients (MemoryScope). And how will settle() know that there is something to wait for?
  not_implemented("step9_diloco: Diloco::start_average()");
}

bool Diloco::finish_round() {
  // Perhaps nobody has started this round's average, and perhaps a checkpoint has waited for it
  // already: settle() knows. If the round has failed, what is fragment() to be next time? And when does
  // the worker keep what it has learned all the same?
  // If not, outer_.step() works in place: on whose parameters? Whatever the worker keeps of its own,
  // none of it may get into the global ones. Are α = 0 and α = 1 exact in your formula?
  // And which memory is of no use to anybody now?
  not_implemented("step9_diloco: Diloco::finish_round()");
}

const Fragment& Diloco::fragment() const {
  return fragments_[static_cast<std::size_t>(fragment_of_round(options_, outer_steps_))];
}

// ---- For checkpoints ---------------------------------------------------------------------------

void Diloco::settle() {
  if (!is_in_flight_) return;
  is_agreed_ = averager_.finish().has_value();
  is_in_flight_ = false;
}

// An average that has failed is left out: after a resume, it is tried again.
Diloco::Round Diloco::round() const {
  return {outer_steps_, !is_in_flight_ && is_agreed_ ? pseudogradient_ : at::Tensor()};
}

void Diloco::restore(const Round& round) {
  outer_steps_ = round.outer_steps;
  pseudogradient_ = round.pseudogradient;
  is_agreed_ = pseudogradient_.defined();
  is_restored_ = true;
}

}  // namespace ladder
