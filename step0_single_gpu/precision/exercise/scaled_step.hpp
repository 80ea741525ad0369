// Exercise, part 2: one optimizer step from gradients that are `scale` times too large. The
// trainers write it out line by line (step5_zero1/train.cpp); here it is one function, small enough
// to be judged.
//
// As in step 5, each rank has its own slice of the gradient, already summed over ranks, and updates
// its own slice of the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/comm/communicator.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/optim/lr_schedule.hpp"
#include "common/optim/optimizer.hpp"

namespace ladder {

// What a rank has once backward has ended.
struct StepParts {
  at::Tensor grads;      // [n], fp32: this rank's slice of the gradient of scale · loss
  LossScaler& scaler;    // the same state on every rank
  Optimizer& optimizer;  // reads `grads` where they are
  double clip_norm = 1;  // the largest norm of the whole, unscaled gradient; 0: no clipping
  LrOptions lr;
  std::int64_t num_steps = 0;  // the length of the learning-rate schedule
};

// Step number `step`, counted from 0, skipped steps included. Divides the gradient by the scale,
// clips it by the norm of the whole, and takes the step if the scaler accepts that norm; otherwise
// parameters and optimizer stay as they are. A skipped step does not move the learning-rate
// schedule: the next one that is taken has the rate that this one would have had.
//
// Returns the norm of the whole gradient, unscaled and before clipping, the same on every rank.
// After a skipped step, `grads` may hold anything.
//
// Collective: one all-reduce of one number, and no other: the norm already tells every rank
//             whether a gradient has overflowed anywhere.
// Throws:     CheckError if the scaler does, on every rank.
double scaled_step(const StepParts& parts, std::int64_t step, Communicator& comm);

}  // namespace ladder
