// The half of a backward pass that nobody waits for.
//
// The backward of a linear layer computes two gradients: that of its input, which the layer before
// needs at once, and those of its own weight and bias, which only the optimizer needs. A
// zero-bubble pipeline computes them at different times. While a DeferWeightGradients is in scope,
// every linear layer whose forward runs is bound to its queue: its backward computes the first half
// and leaves the second there. Two kinds of layers compute their whole backward at once: one
// whose input needs no gradient, because it has no first half; and, in Model::forward(), one that
// reads another layer's unit, because autograd adds up the parts of a shared gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

namespace ladder {

class WeightGradientQueue {
 public:
  // A weight or bias, and how to compute its gradient, [the parameter's shape].
  struct Half {
    at::Tensor parameter;  // a leaf that requires a gradient
    std::function<at::Tensor()> gradient;
  };

  WeightGradientQueue() = default;
  WeightGradientQueue(const WeightGradientQueue&) = delete;  // a graph refers to it: it never moves
  WeightGradientQueue& operator=(const WeightGradientQueue&) = delete;

  void push(Half half) { halves_.push_back(std::move(half)); }
  bool empty() const { return halves_.empty(); }

  // Computes all gradients in the queue, first in, first out, and adds each to its parameter's
  // .grad, as autograd would have. Calls on_gradient with the parameter right afterwards: its hooks
  // do not fire.
  void run(const std::function<void(const at::Tensor& parameter)>& on_gradient = {});

 private:
  std::deque<Half> halves_;  // each keeps the tensors alive that it needs, until it has run
};

// Adds a part of a parameter's gradient to its .grad outside of autograd, as autograd would: the
// parameter's hooks first, but not those that follow the addition.
void add_gradient(at::Tensor parameter, at::Tensor part);

// Whether a parameter has such hooks.
bool has_hooks(const at::Tensor& parameter);

// For a gradient that was added to .grad outside of autograd: calls the parameter's hook that
// follows the addition, if it has one.
void call_gradient_hook(const at::Tensor& parameter);

// Lifetime: the queue outlives the backward of every forward that ran in the scope. Like
//           NoGradGuard, it applies to this thread, and the innermost scope counts. Null:
//           nothing is deferred in this scope.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradientQueue* queue);
  ~DeferWeightGradients();
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

  static WeightGradientQueue* current();  // of this thread

 private:
  WeightGradientQueue* outer_;
};

}  // namespace ladder
