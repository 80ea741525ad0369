#include "common/model/weight_gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "common/core/trace.hpp"

namespace ladder {
namespace {

thread_local WeightGradientQueue* current_queue = nullptr;

}  // namespace

void add_gradient(at::Tensor parameter, at::Tensor part) {
  const at::NoGradGuard no_grad;
  torch::autograd::variable_list parts = {std::move(part)};
  for (const auto& hook : torch::autograd::impl::hooks(parameter)) parts = (*hook)(parts);
  if (parameter.grad().defined()) {
    parameter.mutable_grad().add_(parts[0]);
  } else {
    parameter.mutable_grad() =
        parts[0].to(parameter.grad_dtype().value_or(parameter.scalar_type()));
  }
}

bool has_hooks(const at::Tensor& parameter) {
  return !torch::autograd::impl::hooks(parameter).empty();
}

void call_gradient_hook(const at::Tensor& parameter) {
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  if (hook != nullptr) (*hook)(parameter);
}

void WeightGradientQueue::run(const std::function<void(const at::Tensor& parameter)>& on_gradient) {
  const at::NoGradGuard no_grad;
  const Span span("wgrad");
  for (; !halves_.empty(); halves_.pop_front()) {
    at::Tensor& parameter = halves_.front().parameter;
    add_gradient(parameter, halves_.front().gradient());
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
