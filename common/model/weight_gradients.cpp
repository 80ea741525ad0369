#include "common/model/weight_gradients.hpp"

#include <ATen/core/grad_mode.h>

namespace ladder {
namespace {

thread_local WeightGradientQueue* current_queue = nullptr;

}  // namespace

void WeightGradientQueue::run(const std::function<void(const at::Tensor& parameter)>& on_gradient) {
  const at::NoGradGuard no_grad;
  for (; !halves_.empty(); halves_.pop_front()) {
    at::Tensor& parameter = halves_.front().parameter;
    const at::Tensor gradient = halves_.front().gradient();
    if (parameter.grad().defined()) {
      parameter.mutable_grad().add_(gradient);
    } else {
      parameter.mutable_grad() =
          gradient.to(parameter.grad_dtype().value_or(parameter.scalar_type()));
    }
    if (on_gradient) on_gradient(parameter);
  }
}

DeferWeightGradients::DeferWeightGradients(WeightGradientQueue* queue) : outer_(current_queue) {
  current_queue = queue;
}

DeferWeightGradients::~DeferWeightGradients() {
  current_queue = outer_;
}

WeightGradientQueue* DeferWeightGradients::current() {
  return current_queue;
}

}  // namespace ladder
