// What step 3's train() builds before its loop, and the parts of the loop that do not communicate.
//
// Lifetime: `options` and `world_comm` outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder::hang {

class Replica {
 public:
  Replica(const TrainOptions& options, Communicator& comm);

  bool next_step() { return run.next_step(); }
  Microbatches next_batch() { return batches.next(); }
  double count(const Microbatches& batch) const;  // of target tokens
  // Forward and backward: adds to the gradients. Returns this rank's part of the loss.
  double accumulate(const Microbatches& batch, double num_targets);
  // Clips, takes an optimizer step and zeroes the gradients. Returns the gradient's norm.
  double update();
  // The summed loss of a microbatch, without gradients.
  double evaluate(const Microbatch& microbatch);
  // Ends the step. `sums` are global.
  void record(const StepSums& sums, double grad_norm, double num_targets);
  // Shows a number, on the rank that calls it.
  void show(const char* what, double value);
  TrainReport finish();

  const TrainOptions& options;
  Run run;
  FlatModel flat;
  Model model;
  FlatGradients grads;
  Optimizer optimizer;
  BatchStream batches;
  struct Shown {
    std::int64_t num_steps;  // that had ended by then
    std::string what;
    double value;
  };
  // Both by this rank: the judge reads them.
  std::vector<Shown> shown;
  std::int64_t num_evaluated = 0;
};

}  // namespace ladder::hang
