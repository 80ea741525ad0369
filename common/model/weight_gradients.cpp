#include "common/model/weight_gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local WeightGradientQueue* current_queue = nullptr;

struct SeparateUse : torch::autograd::Function<SeparateUse> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight) {
    context->saved_data["weight"] = weight;
    return weight.view_as(weight);
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    add_gradient(context->saved_data["weight"].toTensor(), std::exchange(outputs[0], {}));
    return {at::Tensor()};
  }
};

}  // namespace

void add_gradient(at::Tensor parameter, at::Tensor part) {
  const at::NoGradGuard no_grad;
  variable_list parts = {std::move(part)};
  for (const auto& hook : torch::autograd::impl::hooks(parameter)) parts = (*hook)(parts);
  if (parameter.grad().defined()) {
    parameter.mutable_grad().add_(parts[0]);
  } else {
    parameter.mutable_grad() =
        parts[0].to(parameter.grad_dtype().value_or(parameter.scalar_type()));
  }
}

at::Tensor separate_use(const at::Tensor& weight) {
  const bool is_watched = weight.requires_grad() && at::GradMode::is_enabled() &&
                          !torch::autograd::impl::hooks(weight).empty();
  return is_watched ? SeparateUse::apply(weight) : weight;
}

void WeightGradientQueue::run(const std::function<void(const at::Tensor& parameter)>& on_gradient) {
  const at::NoGradGuard no_grad;
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
