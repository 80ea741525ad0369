// A loss scaler that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <cmath>
#include <optional>

#include "common/core/check.hpp"
#include "common/optim/loss_scaler.hpp"

namespace ladder::loss_scaler {

class RightScaler {
 public:
  explicit RightScaler(const std::optional<LossScaleOptions>& options)
      : options_(options), state_{.scale = options ? options->initial : 1} {}
  virtual ~RightScaler() = default;

  double scale() const { return state_.scale; }
  LossScaleState state() const { return state_; }
  virtual void restore(const LossScaleState& state) { state_ = state; }

  virtual bool accepts(double grad_norm) {
    if (!is_on()) return true;
    if (overflows(grad_norm)) {
      if (is_hopeless()) give_up();
      shrink();
      forget_good_steps();
      count_skip();
      return false;
    }
    count_good_step();
    if (has_window_passed()) {
      if (may_grow()) state_.scale *= 2;
      begin_window();
    }
    return true;
  }

 protected:
  virtual bool is_on() { return options_.has_value(); }
  virtual bool overflows(double norm) { return !std::isfinite(norm); }
  virtual bool is_hopeless() { return state_.scale <= 1; }
  virtual void give_up() { throw CheckError("training has diverged: try a lower --lr"); }
  virtual void shrink() { state_.scale /= 2; }
  virtual void forget_good_steps() { state_.good_steps = 0; }
  virtual void count_skip() { ++state_.skipped_steps; }
  virtual void count_good_step() { ++state_.good_steps; }
  virtual bool has_window_passed() { return state_.good_steps >= options_->window; }
  virtual bool may_grow() { return state_.scale < std::ldexp(1, 30); }
  virtual void begin_window() { state_.good_steps = 0; }

  std::optional<LossScaleOptions> options_;
  LossScaleState state_;
};

}  // namespace ladder::loss_scaler
