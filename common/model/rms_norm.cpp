#include "common/model/rms_norm.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "common/core/precision.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// On the CPU, at::rms_norm is seven operators, whose autograd saves x three times over.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor wide = widened(x);
    const at::Tensor scale =
        wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();  // [..., 1]
    context->save_for_backward({x, weight, scale});
    return (wide * scale).to(x.scalar_type()).mul_(weight);
  }

  // With n = x · scale and g = dy · weight: dx = scale · (g - n · mean(g · n)), and weight's
  // gradient is dy · n, summed over all tokens.
  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const at::Tensor dy = widened(outputs[0]), n = widened(x) * scale;
    at::Tensor product = dy * n;
    variable_list gradients(3);
    if (context->needs_input_grad(1)) gradients[1] = product.reshape({-1, product.size(-1)}).sum(0);
    product.mul_(widened(weight));
    const at::Tensor mean = product.mean(-1, /*keepdim=*/true);
    at::Tensor& g = at::mul_out(product, dy, widened(weight));
    gradients[0] = g.addcmul_(n, mean, -1).mul_(scale).to(x.scalar_type());
    return gradients;
  }
};

}  // namespace

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  if (x.is_cuda()) return at::rms_norm(x, {x.size(-1)}, weight, epsilon);
  return RmsNormFunction::apply(x, weight, epsilon);
}

}  // namespace ladder
