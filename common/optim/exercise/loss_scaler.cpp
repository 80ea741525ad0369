// Exercise, part 1: the loss scale of fp16.
//
// Write the body as common/optim/loss_scaler.hpp describes it, then run:
//   ./ladder exercise loss_scaler
// Part 2 is in scaled_step.cpp.
#include "common/optim/loss_scaler.hpp"

#include "common/core/check.hpp"

namespace ladder {

bool LossScaler::accepts(double /*grad_norm*/) {
  // state_ has the three numbers; everything that must survive a checkpoint belongs there. What
  // does an overflow change, and what does a good step? Where halving cannot help, throw a
  // CheckError (check() in common/core/check.hpp) that says what to try instead, --lr first of all.
  not_implemented("loss_scaler: LossScaler::accepts()");
}

}  // namespace ladder
