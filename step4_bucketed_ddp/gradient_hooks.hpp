// Says when a gradient is ready.
//
// At some point in the backward pass autograd adds a parameter's gradient to .grad, and calls the
// parameter's post-accumulate hook right afterwards. From then on the gradient may be sent: these
// hooks pass the call on, with the parameter's index. A tied weight gets one call, after all its
// parts have been added up. A parameter that took no part in a backward pass gets none.
//
// Local. A parameter has one such hook at a time; the destructor removes the hooks. On a GPU autograd
// calls them on a thread of its own, and a trace of the thread that made them goes on there.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/core/trace.hpp"
#include "common/core/unit.hpp"

namespace ladder {

class GradientHooks {
 public:
  // `leaves`: a model's own tensors. Each trainable one gets a hook, which calls on_gradient with
  // the leaf's index from inside backward.
  GradientHooks(const std::vector<NamedTensor>& leaves,
                std::function<void(std::size_t leaf)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  class Hook;
  std::vector<at::Tensor> hooked_;
  std::function<void(std::size_t leaf)> on_gradient_;
  TraceLog* log_ = TraceLog::current();
};

}  // namespace ladder
