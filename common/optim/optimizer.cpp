#include "common/optim/optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "common/core/check.hpp"
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

namespace {

std::vector<OptimizerSlice> whole_model(const FlatModel& model, const FlatGradients& grads) {
  std::vector<OptimizerSlice> slices;
  for (const UpdateRange& range : plan_updates(model.layout())) {
    slices.push_back({model.params().narrow(0, range.start, range.numel),
                      grads.flat().narrow(0, range.start, range.numel), range.start,
                      range.has_decay});
  }
  return slices;
}

}  // namespace

Optimizer::Optimizer(FlatModel& model, const FlatGradients& grads, const OptimizerOptions& options)
    : Optimizer(whole_model(model, grads), model.layout().numel, options) {}

Optimizer::Optimizer(const std::vector<OptimizerSlice>& slices, std::int64_t state_numel,
                     const OptimizerOptions& options)
    : options_(options) {
  const bool is_adamw = options.kind == OptimizerKind::kAdamW;
  if (is_adamw) {
    const MemoryScope scope(MemoryCategory::kOptimizer);
    for (const char* name : {"exp_avg", "exp_avg_sq"})
      state_.push_back({name, at::zeros({state_numel}, at::kFloat)});
  }
  groups_.resize(2);
  groups_[1].weight_decay = options.weight_decay;
  const at::Tensor step = at::from_blob(&step_for_kernel_, {}, at::kFloat);
  for (const OptimizerSlice& slice : slices) {
    const std::int64_t numel = slice.params.numel();
    check(slice.state_start % kTensorAlignment == 0 && numel % kTensorAlignment == 0,
          "Optimizer: a slice of ", numel, " elements has its state at ", slice.state_start,
          "; both must be multiples of ", kTensorAlignment);
    Group& group = groups_[slice.has_decay ? 1 : 0];
    group.params.push_back(slice.params);
    group.grads.push_back(slice.grads);
    if (!is_adamw) continue;
    group.exp_avgs.push_back(state_[0].tensor.narrow(0, slice.state_start, numel));
    group.exp_avg_sqs.push_back(state_[1].tensor.narrow(0, slice.state_start, numel));
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

// The kernel adds weight_decay · p to the gradient. Without momentum that equals shrinking p first.
void Optimizer::sgd_step(double learning_rate) {
  for (const Group& group : groups_) {
    if (group.params.empty()) continue;
    at::_fused_sgd_(group.params, group.grads, /*momentum_buffer_list=*/{}, group.weight_decay,
                    /*momentum=*/0.0, learning_rate, /*dampening=*/0.0, /*nesterov=*/false,
                    /*maximize=*/false, /*is_first_step=*/false);
  }
}

std::vector<NamedTensor> Optimizer::named_state(const FlatLayout& layout) const {
  std::vector<NamedTensor> named;
  for (const auto& [state_name, flat] : state_) {
    for (NamedTensor& view : named_views(layout, flat))
      named.push_back({view.name + "." + state_name, std::move(view.tensor)});
  }
  return named;
}

}  // namespace ladder
