#include "common/model/fused_on_gpu.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/cuda/fused_kernels.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static_assert(sizeof(kernels::RowStatistics) == 2 * sizeof(float));  // a row of a tensor [rows, 2]

kernels::Rows rows_of(const at::Tensor& x) {
  const std::int64_t columns = x.size(-1);
  return {.type = x.scalar_type(), .num_rows = x.numel() / columns, .num_columns = columns};
}

at::Tensor empty_fp32(const at::Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

const void* data_or_null(const at::Tensor& values) {
  return values.defined() ? values.const_data_ptr() : nullptr;
}

// [columns] of parts [parts, columns].
at::Tensor added_up(const at::Tensor& parts) {
  const at::Tensor sums = empty_fp32(parts, {parts.size(1)});
  kernels::add_parts(parts.const_data_ptr<float>(), parts.size(0), parts.size(1),
                     sums.mutable_data_ptr<float>(), at::cuda::getCurrentCUDAStream());
  return sums;
}

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& branch, const at::Tensor& weight,
                               const at::Tensor& bias, double epsilon) {
    const kernels::Rows rows = rows_of(x);
    const at::Tensor sum = branch ? at::empty_like(x) : x, normed = at::empty_like(x);
    const at::Tensor statistics = empty_fp32(x, {rows.num_rows, 2});
    kernels::add_layer_norm(
        rows, x.const_data_ptr(), branch ? branch->const_data_ptr() : nullptr,
        weight.const_data_ptr(), bias.const_data_ptr(), static_cast<float>(epsilon),
        branch ? sum.mutable_data_ptr() : nullptr, normed.mutable_data_ptr(),
        reinterpret_cast<kernels::RowStatistics*>(statistics.mutable_data_ptr<float>()),
        at::cuda::getCurrentCUDAStream());
    context->save_for_backward({sum, weight, statistics});
    context->saved_data["has_branch"] = branch.has_value();
    context->set_materialize_grads(false);  // where nothing adds to the sum's, there is none
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &statistics = saved[2];
    if (!outputs[1].defined()) return {outputs[0], outputs[0], {}, {}, {}};
    const kernels::Rows rows = rows_of(sum);
    const at::Tensor dsum = outputs[0].defined() ? outputs[0].contiguous() : outputs[0];
    const at::Tensor dnormed = outputs[1].contiguous(), dx = at::empty_like(sum);
    const at::Tensor parts =
        empty_fp32(sum, {kernels::num_norm_parts(rows.num_rows), 2 * rows.num_columns});
    kernels::add_layer_norm_backward(
        rows, sum.const_data_ptr(),
        reinterpret_cast<const kernels::RowStatistics*>(statistics.const_data_ptr<float>()),
        weight.const_data_ptr(), dnormed.const_data_ptr(), data_or_null(dsum),
        dx.mutable_data_ptr(), parts.mutable_data_ptr<float>(), at::cuda::getCurrentCUDAStream());
    const std::vector<at::Tensor> gradients = added_up(parts).chunk(2);  // of weight and bias
    const bool has_branch = context->saved_data["has_branch"].toBool();
    return {dx, has_branch ? dx : at::Tensor(), gradients[0], gradients[1], {}};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias) {
    const at::Tensor y = at::empty_like(x);
    kernels::bias_gelu(rows_of(x), x.const_data_ptr(), bias.const_data_ptr(), y.mutable_data_ptr(),
                       at::cuda::getCurrentCUDAStream());
    context->save_for_backward({x, bias});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    const kernels::Rows rows = rows_of(x);
    const at::Tensor dy = outputs[0].contiguous(), dx = at::empty_like(x);
    const at::Tensor parts = empty_fp32(x, {kernels::num_parts(rows), rows.num_columns});
    kernels::bias_gelu_backward(rows, x.const_data_ptr(), bias.const_data_ptr(),
                                dy.const_data_ptr(), dx.mutable_data_ptr(),
                                parts.mutable_data_ptr<float>(), at::cuda::getCurrentCUDAStream());
    return {dx, added_up(parts)};
  }
};

}  // namespace

bool has_fused_kernels(const at::Tensor& x) {
  return x.is_cuda() && is_16_bit(x.scalar_type()) && x.is_contiguous() && x.numel() > 0 &&
         x.size(-1) % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool has_fused_layer_norm(const at::Tensor& x) {
  return has_fused_kernels(x) && x.size(-1) <= kernels::kMostNormColumns;
}

Fork add_layer_norm_on_gpu(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                           const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  const variable_list outputs = AddLayerNorm::apply(
      x, branch ? std::optional(branch->contiguous()) : std::nullopt, weight, bias, epsilon);
  return {outputs[0], outputs[1]};
}

at::Tensor bias_gelu_on_gpu(const at::Tensor& x, const at::Tensor& bias) {
  return BiasGelu::apply(x, bias);
}

at::Tensor row_sums_on_gpu(const at::Tensor& x) {
  const kernels::Rows rows = rows_of(x);
  const at::Tensor parts = empty_fp32(x, {kernels::num_parts(rows), rows.num_columns});
  kernels::sum_rows(rows, x.const_data_ptr(), parts.mutable_data_ptr<float>(),
                    at::cuda::getCurrentCUDAStream());
  return added_up(parts);
}

}  // namespace ladder
