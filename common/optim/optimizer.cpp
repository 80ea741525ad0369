#include "common/optim/optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "common/core/memory_ledger.hpp"

namespace ladder {

std::vector<UpdateRange> plan_updates(const FlatLayout& layout) {
  std::vector<UpdateRange> ranges;
  for (const FlatTensor& tensor : layout.tensors) {
    if (!tensor.is_trainable) continue;
    const bool has_decay = tensor.shape.size() >= 2;
    const bool continues = !ranges.empty() && ranges.back().has_decay == has_decay &&
                           ranges.back().start + ranges.back().numel == tensor.start;
    if (!continues) ranges.push_back({tensor.start, 0, has_decay});
    ranges.back().numel += tensor.padded_numel;
  }
  return ranges;
}

Optimizer::Optimizer(FlatModel& model, const OptimizerOptions& options)
    : model_(model), options_(options) {
  const bool is_adamw = options.kind == OptimizerKind::kAdamW;
  if (is_adamw) {
    const MemoryScope scope(MemoryCategory::kOptimizer);
    exp_avg_ = at::zeros({model.layout().numel}, at::kFloat);
    exp_avg_sq_ = at::zeros({model.layout().numel}, at::kFloat);
  }
  groups_.resize(2);
  groups_[1].weight_decay = options.weight_decay;
  const at::Tensor step = at::from_blob(&step_for_kernel_, {}, at::kFloat);
  for (const UpdateRange& range : plan_updates(model.layout())) {
    Group& group = groups_[range.has_decay ? 1 : 0];
    group.params.push_back(model.params().narrow(0, range.start, range.numel));
    group.grads.push_back(model.grads().narrow(0, range.start, range.numel));
    if (!is_adamw) continue;
    group.exp_avgs.push_back(exp_avg_.narrow(0, range.start, range.numel));
    group.exp_avg_sqs.push_back(exp_avg_sq_.narrow(0, range.start, range.numel));
    group.steps.push_back(step);
  }
}

void Optimizer::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  ++num_steps_;
  if (options_.kind == OptimizerKind::kAdamW) {
    adamw_step(learning_rate);
  } else {
    sgd_step(learning_rate);
  }
}

void Optimizer::adamw_step(double learning_rate) {
  step_for_kernel_ = static_cast<float>(num_steps_);
  for (const Group& group : groups_) {
    if (group.params.empty()) continue;
    at::_fused_adamw_(group.params, group.grads, group.exp_avgs, group.exp_avg_sqs,
                      /*max_exp_avg_sqs=*/{}, group.steps, learning_rate, options_.beta1,
                      options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

// The kernel adds weight_decay · p to the gradient: without momentum the same as shrinking p first.
void Optimizer::sgd_step(double learning_rate) {
  for (const Group& group : groups_) {
    if (group.params.empty()) continue;
    at::_fused_sgd_(group.params, group.grads, /*momentum_buffer_list=*/{}, group.weight_decay,
                    /*momentum=*/0.0, learning_rate, /*dampening=*/0.0, /*nesterov=*/false,
                    /*maximize=*/false, /*is_first_step=*/false);
  }
}

std::vector<NamedTensor> Optimizer::named_state() const {
  std::vector<NamedTensor> state;
  if (!exp_avg_.defined()) return state;
  for (NamedTensor& view : named_views(model_.layout(), exp_avg_)) {
    state.push_back({view.name + ".exp_avg", std::move(view.tensor)});
  }
  for (NamedTensor& view : named_views(model_.layout(), exp_avg_sq_)) {
    state.push_back({view.name + ".exp_avg_sq", std::move(view.tensor)});
  }
  return state;
}

}  // namespace ladder
