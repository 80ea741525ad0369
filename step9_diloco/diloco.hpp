// DiLoCo on one worker: a global copy of the parameters, and rounds that move it.
//
// In a round, every worker trains its own parameters. Then the workers average how far they have
// moved away from the global copy, fragment by fragment, and the outer optimizer moves the global
// copy of that fragment by this average. The workers go on from there:
//
//   start_average   g = global − parameters, of the round's fragment; its average is in flight
//   finish_round    L = parameters;  global = outer step(global, average of g);
//                   parameters = (1−α)·global + α·L
//
// Global copy and outer momentum are equal on all workers, to the bit, after every round. In a round
// that has failed the fragment's parameters go back to the global ones, and what it learned in the
// round is lost; the next round is about the same fragment.
//
// Collective over the workers: start_average() and finish_round(), in the same inner steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/optim/flat_model.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/fragments.hpp"
#include "step9_diloco/outer_sgd.hpp"

namespace ladder {

class Diloco {
 public:
  // Memory: 8 bytes per element of the layout, counted as optimizer: global copy and momentum. From
  //         start_average() to finish_round() also 4 bytes per element of the fragment, counted as
  //         communication.
  // Lifetime: the model and the averager outlive it.
  Diloco(FlatModel& model, const DilocoOptions& options, Averager& averager);

  void adopt_parameters();  // global := parameters, once these are equal on all workers
  // Says to which number of outer steps global() and velocity() belong, after they were overwritten.
  void set_outer_steps(std::int64_t outer_steps) { outer_steps_ = outer_steps; }
  void start_average();
  bool finish_round();  // false if the round has failed

  std::int64_t outer_steps() const { return outer_steps_; }
  const at::Tensor& global() const { return global_; }      // [layout().numel]
  const at::Tensor& velocity() const { return velocity_; }  // [layout().numel]

 private:
  const Fragment& fragment() const;  // of this round

  const FlatModel& model_;
  DilocoOptions options_;
  Averager& averager_;
  std::vector<Fragment> fragments_;
  OuterSgd outer_;
  at::Tensor global_, velocity_;
  at::Tensor pseudogradient_;  // in flight; undefined between rounds
  std::int64_t outer_steps_ = 0;
};

}  // namespace ladder
