#include "common/optim/optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/optim/rounding.hpp"

namespace ladder {

std::vector<UpdateRange> plan_updates(const FlatLayout& layout) {
  std::vector<UpdateRange> ranges;
  for (const FlatTensor& tensor : layout.tensors) {
    if (!tensor.is_trainable) continue;
    const bool has_decay = tensor.shape.size() >= 2;
    const bool continues = !layout.precision.has_16_bit_params() && !ranges.empty() &&
                           ranges.back().has_decay == has_decay &&
                           ranges.back().start + ranges.back().numel == tensor.start;
    if (!continues) ranges.push_back({tensor.start, 0, has_decay, tensor.name});
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
                      range.has_decay, range.tensor});
  }
  return slices;
}

// As many as there are in `to` and `from`, either of which may be narrower.
void copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i)
    at::Tensor(to[i]).copy_(from[i]);
}

}  // namespace

Optimizer::Optimizer(FlatModel& model, const FlatGradients& grads, const OptimizerOptions& options)
    : Optimizer(whole_model(model, grads), model.layout().numel, model.layout(), options) {}

Optimizer::Optimizer(const std::vector<OptimizerSlice>& slices, std::int64_t state_numel,
                     const FlatLayout& layout, const OptimizerOptions& options)
    : options_(options) {
  const Precision& precision = layout.precision;
  const at::TensorOptions fp32 = layout.buffer(NumberFormat::kFp32);
  const bool is_adamw = options.kind == OptimizerKind::kAdamW;
  const bool has_masters = precision.has_16_bit_params() && options.masters == Masters::kFp32;
  {
    const MemoryScope scope(MemoryCategory::kOptimizer);
    if (has_masters) masters_ = at::zeros({state_numel}, fp32);
    for (const char* name : {"exp_avg", "exp_avg_sq"})
      if (is_adamw) state_.push_back({name, at::zeros({state_numel}, fp32)});
  }
  const MemoryScope scope(MemoryCategory::kOther, "widened for the update");
  if (precision.has_16_bit_params() && !has_masters) wide_params_ = at::empty({kWidePiece}, fp32);
  has_own_kernel_ = layout.device.is_cuda() && is_adamw;
  if (is_16_bit(precision.grads) && !has_own_kernel_) wide_grads_ = at::empty({kWidePiece}, fp32);
  groups_.resize(2);
  groups_[1].weight_decay = options.weight_decay;
  for (const OptimizerSlice& slice : slices) {
    const std::int64_t numel = slice.params.numel();
    check(slice.state_start % kUpdateAlignment == 0 && numel % kUpdateAlignment == 0,
          "Optimizer: a slice of ", numel, " elements has its state at ", slice.state_start,
          "; both must be multiples of ", kUpdateAlignment);
    if (wide_params_.defined() || wide_grads_.defined()) {
      add_in_pieces(slice);
    } else {
      add(groups_[slice.has_decay ? 1 : 0], slice);
    }
  }
}

void Optimizer::add(Group& group, const OptimizerSlice& slice) {
  const std::int64_t numel = slice.params.numel();
  const auto at_place = [&](const at::Tensor& state) {
    return state.narrow(0, slice.state_start, numel);
  };
  group.params.push_back(masters_.defined()       ? at_place(masters_)
                         : wide_params_.defined() ? wide_params_.narrow(0, 0, numel)
                                                  : slice.params);
  if (masters_.defined() || wide_params_.defined()) group.narrow_params.push_back(slice.params);
  if (wide_grads_.defined()) {
    group.grads.push_back(wide_grads_.narrow(0, 0, numel));
    group.narrow_grads.push_back(slice.grads);
  } else {
    group.grads.push_back(slice.grads);
  }
  if (state_.empty()) return;
  group.exp_avgs.push_back(at_place(state_[0].tensor));
  group.exp_avg_sqs.push_back(at_place(state_[1].tensor));
  group.steps.push_back(at::from_blob(&step_for_kernel_, {}, at::kFloat));
}

// Scratch holds one piece, so each piece needs a call of its own.
void Optimizer::add_in_pieces(const OptimizerSlice& slice) {
  for (std::int64_t start = 0; start < slice.params.numel(); start += kWidePiece) {
    const std::int64_t numel = std::min(kWidePiece, slice.params.numel() - start);
    Group& group = groups_.emplace_back();
    group.weight_decay = slice.has_decay ? options_.weight_decay : 0;
    group.tensor = slice.tensor;
    group.tensor_start = slice.tensor_start + start;
    add(group, {slice.params.narrow(0, start, numel), slice.grads.narrow(0, start, numel),
                slice.state_start + start, slice.has_decay});
  }
}

void Optimizer::step(double learning_rate, double grad_factor) {
  const Span span("optimizer step");
  const at::NoGradGuard no_grad;
  start_masters();
  ++num_steps_;
  step_for_kernel_ = static_cast<float>(num_steps_);
  for (const Group& group : groups_) {
    if (group.params.empty()) continue;
    widen(group, grad_factor);
    if (options_.kind == OptimizerKind::kAdamW) {
      adamw_step(group, learning_rate, grad_factor);
    } else {
      sgd_step(group, learning_rate);
    }
    narrow(group);
  }
}

void Optimizer::widen(const Group& group, double grad_factor) {
  if (wide_params_.defined()) copy(group.narrow_params, group.params);
  copy(group.narrow_grads, group.grads);
  if (has_own_kernel_ || grad_factor == 1) return;
  for (const at::Tensor& grads : group.grads) at::Tensor(grads).mul_(grad_factor);
}

void Optimizer::narrow(const Group& group) {
  if (has_own_kernel_ && masters_.defined()) return;  // it has rounded them itself
  if (options_.masters != Masters::kStochastic) return copy(group.params, group.narrow_params);
  for (std::size_t i = 0; i < group.narrow_params.size(); ++i)
    round_stochastically(group.params[i], group.narrow_params[i],
                         rounding_stream(options_.seed, num_steps_, group.tensor),
                         group.tensor_start);
}

void Optimizer::start_masters() {
  const at::NoGradGuard no_grad;
  if (have_masters_started_ || !masters_.defined()) return;
  for (const Group& group : groups_) copy(group.narrow_params, group.params);
  have_masters_started_ = true;
}

void Optimizer::copy_masters_to_params() {
  if (!masters_.defined()) return;
  const at::NoGradGuard no_grad;
  have_masters_started_ = true;
  for (const Group& group : groups_) copy(group.params, group.narrow_params);
}

FlatModel Optimizer::updated_model(const FlatModel& model) const {
  if (!masters_.defined()) return {model.layout(), model.params()};
  return {in_fp32(model.layout()), masters_};
}

void Optimizer::adamw_step(const Group& group, double learning_rate, double grad_factor) {
  if (has_own_kernel_) {
    const AdamWStep step = {learning_rate,      options_.beta1, options_.beta2, options_.eps,
                            group.weight_decay, num_steps_,     grad_factor};
    const std::vector<at::Tensor> none;
    adamw_on_gpu(group.params, group.grads, group.exp_avgs, group.exp_avg_sqs,
                 masters_.defined() ? group.narrow_params : none, step);
    return;
  }
  at::_fused_adamw_(group.params, group.grads, group.exp_avgs, group.exp_avg_sqs,
                    /*max_exp_avg_sqs=*/{}, group.steps, learning_rate, options_.beta1,
                    options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

// The kernel adds weight_decay · p to the gradient. Without momentum that equals shrinking p first.
void Optimizer::sgd_step(const Group& group, double learning_rate) {
  at::_fused_sgd_(group.params, group.grads, /*momentum_buffer_list=*/{}, group.weight_decay,
                  /*momentum=*/0.0, learning_rate, /*dampening=*/0.0, /*nesterov=*/false,
                  /*maximize=*/false, /*is_first_step=*/false);
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
