#include "common/optim/loss_scaler.hpp"

#include <cmath>

#include "common/core/check.hpp"

namespace ladder {

bool LossScaler::accepts(double grad_norm) {
  constexpr double kLargest = 1 << 30;  // of a model whose gradients are all zero
  if (!is_on()) return true;
  if (!std::isfinite(grad_norm)) {
    check(state_.scale > 1,
          "the gradient overflows fp16 even at a loss scale of 1 (steps skipped so ",
          "far: ", state_.skipped_steps, "): training has diverged. Try a lower --lr, a longer ",
          "--warmup-steps, or --precision bf16, which needs no scale");
    state_.scale /= 2;
    state_.good_steps = 0;
    ++state_.skipped_steps;
    return false;
  }
  if (++state_.good_steps >= window_) {
    if (state_.scale < kLargest) state_.scale *= 2;
    state_.good_steps = 0;
  }
  return true;
}

}  // namespace ladder
