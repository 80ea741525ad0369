// Says when a gradient is ready.
//
// autograd adds a parameter's gradient to .grad at some moment of the backward pass, and calls the
// parameter's post-accumulate hook right after it. These hooks pass the call on, with the parameter's
// index: the moment at which communication can start. A tied weight is added up first, and then
// called for once. A parameter that took no part in a backward pass is not called for at all.
//
// Local. A parameter has one such hook at a time; destroying this takes the hooks off again.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/core/unit.hpp"

namespace ladder {

class GradientHooks {
 public:
  // `leaves`: a model's own tensors. Each one that is trainable gets a hook, which calls on_gradient
  // with its index among the leaves, from inside backward.
  GradientHooks(const std::vector<NamedTensor>& leaves,
                std::function<void(std::size_t leaf)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  class Hook;
  std::vector<at::Tensor> hooked_;
  std::function<void(std::size_t leaf)> on_gradient_;
};

}  // namespace ladder
