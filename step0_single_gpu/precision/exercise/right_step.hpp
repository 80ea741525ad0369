// A step from scaled gradients that is right, in small parts: a wrong one overrides a part. Read it
// after you have written your own.
#pragma once

#include <cmath>

#include "common/optim/norm.hpp"
#include "step0_single_gpu/precision/exercise/scaled_step.hpp"

namespace ladder::loss_scaler {

class RightStep {
 public:
  virtual ~RightStep() = default;

  virtual double take(const StepParts& parts, std::int64_t step, Communicator& comm) {
    scale_ = parts.scaler.scale();
    const double norm = norm_of_all(parts, comm);
    if (!may_step(parts, norm, comm)) return skipped_norm(norm);
    unscale_and_clip(parts, norm);
    parts.optimizer.step(rate(parts, num_taken(parts, step)));
    return norm;
  }

 protected:
  virtual double norm_of_all(const StepParts& parts, Communicator& comm) {
    return std::sqrt(sum_over_ranks(own_squares(parts), comm)) / scale_;
  }
  virtual double own_squares(const StepParts& parts) {
    const double norm = norm_of(block_sums({parts.grads}));
    return norm * norm;
  }
  virtual double sum_over_ranks(double squares, Communicator& comm) {
    return all_reduce_sum(squares, comm);
  }
  virtual bool may_step(const StepParts& parts, double norm, Communicator& /*comm*/) {
    return parts.scaler.accepts(norm);
  }
  virtual double skipped_norm(double norm) { return norm; }
  virtual void unscale_and_clip(const StepParts& parts, double norm) {
    parts.grads.mul_(clip_factor(norm, parts.clip_norm) / scale_);
  }
  virtual std::int64_t num_taken(const StepParts& parts, std::int64_t step) {
    return step - parts.scaler.state().skipped_steps;
  }
  virtual double rate(const StepParts& parts, std::int64_t num_taken) {
    return learning_rate(parts.lr, num_taken, parts.num_steps);
  }

  double scale_ = 1;  // of these gradients
};

}  // namespace ladder::loss_scaler
