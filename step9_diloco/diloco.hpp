// DiLoCo on one worker: global parameters next to the worker's own, and rounds that move them.
//
// In a round, every worker trains its own parameters. Then the workers average how far they have
// moved away from the global ones, fragment by fragment, and the outer optimizer moves the global
// parameters of that fragment by this average. The workers go on from there:
//
//   start_average   g = global − parameters, of the round's fragment; its average is in flight
//   finish_round    L = parameters;  global = outer step(global, average of g);
//                   parameters = (1−α)·global + α·L
//
// The global parameters and the outer momentum are equal on all workers, to the bit, after every
// round. In a round that has failed the fragment's parameters go back to the global ones, and what
// it learned in the round is lost, whatever α is; the next round is about the same fragment.
//
// Parameters may have 16 bits; global parameters, momentum and g are fp32 always. α = 0 and α = 1
// copy: the bits of the global parameters, or of L, whatever the other one holds (a NaN, −0).
//
// Collective over the workers: start_average() and finish_round(), in the same inner steps, and
// settle().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/optim/flat_model.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/fragments.hpp"

namespace ladder {

class Diloco {
 public:
  // `global`: a second copy of the model, equal on all workers; updated in place.
  // Memory: 4 bytes per element of the layout for the momentum, counted as optimizer. From
  //         start_average() to finish_round() also 4 bytes per element of the fragment for the
  //         pseudogradient, counted as gradients.
  // Lifetime: both models and the averager outlive it.
  Diloco(FlatModel& model, FlatModel& global, const DilocoOptions& options, Averager& averager);
  ~Diloco();

  // parameters := global, unless restore() has said that the worker has parameters of its own.
  // Local.
  void adopt_global();
  void start_average();
  bool is_started() const;  // this round's average
  // Starts the average, too, if that has not been done: a run may resume after it was due.
  // Returns false if the round has failed.
  bool finish_round();

  // For a checkpoint. settle() waits for the average in flight, if there is one; training can go on
  // just as without it. `pseudogradient` is then that average [the round's fragment]; undefined if
  // none has started, or if the round has failed: a resumed run tries again.
  void settle();
  struct Round {
    std::int64_t outer_steps = 0;  // taken so far
    at::Tensor pseudogradient;
  };
  Round round() const;
  // Continues from there. The caller has filled parameters, global parameters and velocity().
  void restore(const Round& round);

  const at::Tensor& velocity() const;  // [layout().numel], the outer momentum
  const FlatLayout& layout() const;
  const std::vector<Fragment>& fragments() const;

 private:
  struct State;  // what it knows, and what it does with it: diloco.cpp
  std::unique_ptr<State> state_;
};

}  // namespace ladder
