// fp16's loss scale: what keeps small gradients from becoming zero.
//
// The smallest number above zero in fp16 is 6e-8, and the gradients of activations are often
// smaller. So backward starts from scale · loss, and all gradients come out scale times as large;
// they are divided by it again in fp32, before they are clipped. The largest scale is best that
// makes no gradient overflow (the largest number is 65504), and nobody knows it beforehand:
//
//   a gradient is infinite, or not a number      skip the step, and halve the scale
//   `window` steps or more in a row were good    double it, up to 2^30, and count again from 0
//
// A scale is a power of two, so that multiplying and dividing by it rounds nothing. bf16 and fp32
// have an exponent of 8 bits, which reaches down to 1e-38: their scale is 1, and stays.
//
// The decision must be the same on all ranks: one that skips alone is out of step forever. It is
// made from the norm of the whole gradient, which every rank has computed from the same numbers: if
// a gradient overflows in one microbatch on one rank or stage, the norm is not finite on any of
// them. So agreeing costs no message of its own.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "common/optim/options.hpp"

namespace ladder {

// What a checkpoint stores of it.
struct LossScaleState {
  double scale = 1;
  // Good steps in a row, since the scale was last doubled or halved, or at 2^30 would have been
  // doubled.
  std::int64_t good_steps = 0;
  std::int64_t skipped_steps = 0;  // since the start of training
  bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
 public:
  LossScaler() = default;  // a scale of 1, forever: whatever is restored is only kept
  explicit LossScaler(const LossScaleOptions& options)
      : window_(options.window), state_{.scale = options.initial} {}

  double scale() const { return is_on() ? state_.scale : 1; }

  // Returns a loss with the same values, whose gradients are scale() times as large. The scale is
  // read at each call. `loss` is a std::function that returns a new tensor in fp32.
  // Lifetime: the scaler outlives the result.
  template <class Loss>
  Loss applied_to(Loss loss) const {
    if (!is_on()) return loss;
    return [this, loss = std::move(loss)](const auto&... inputs) {
      const at::Tensor value = loss(inputs...);
      const auto scaled = [times = scale()](const at::Tensor& gradient) {
        return gradient * times;
      };
      if (value.requires_grad()) value.register_hook(scaled);  // not in an evaluation
      return value;
    };
  }

  // To be called once per step, with the norm of the whole gradient after it has been divided by
  // the scale. Returns whether the optimizer may take the step. Without a scale it always may:
  // whether its values are finite is then checked elsewhere. Throws CheckError if there is an
  // overflow even at a scale of 1: then it is not the scale's fault, and no smaller one would help.
  bool accepts(double grad_norm);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }
  bool is_on() const { return window_ > 0; }

 private:
  std::int64_t window_ = 0;
  LossScaleState state_;
};

}  // namespace ladder
