#include "common/model/llama_layers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numbers>
#include <numeric>

#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/recipes.hpp"

namespace ladder {

struct RotaryPositions::Table {
  std::int64_t context, d;
  double theta;
  RopeScaling scaling;
  at::Tensor cos = {}, sin = {};  // [context, 1, d/2], on the device of the first call

  // Makes the table in fp32, by the operators that Hugging Face's Llama calls.
  void make(at::Device device) {
    const MemoryScope scope(MemoryCategory::kOther, "rotary positions");
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
    const at::Tensor exponents = at::arange(0, d, 2, options).div_(static_cast<double>(d));
    const at::Tensor speeds = scaled(at::pow(theta, exponents).reciprocal_());
    const at::Tensor angles = at::arange(context, options).view({-1, 1, 1}) * speeds;
    cos = angles.cos();
    sin = angles.sin();
  }

  at::Tensor scaled(const at::Tensor& speeds) const {
    if (scaling.kind == RopeScaling::Kind::kNone) return speeds;
    if (scaling.kind == RopeScaling::Kind::kLinear) return speeds / scaling.factor;
    const at::Tensor turns =
        static_cast<double>(scaling.original_context) / (2 * std::numbers::pi / speeds);
    const at::Tensor kept =  // 0: slow, 1: fast
        ((turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns)).clamp(0, 1);
    return (1 - kept) * speeds / scaling.factor + kept * speeds;
  }
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Every point (a, b) becomes (a cos - b sin, b cos + a sin), or is turned the other way.
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  bool is_back = false) {
  const at::Tensor wide = widened(x);
  at::Tensor y = at::empty(x.sizes(), wide.options());
  const std::vector<at::Tensor> from = wide.chunk(2, /*dim=*/-1), to = y.chunk(2, /*dim=*/-1);
  const double sign = is_back ? -1 : 1;
  at::Tensor a = to[0], b = to[1];
  at::mul_out(a, from[0], cos).addcmul_(from[1], sin, -sign);
  at::mul_out(b, from[1], cos).addcmul_(from[0], sin, sign);
  return y.to(x.scalar_type());
}

struct Turned : torch::autograd::Function<Turned> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return turned(x, cos, sin);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    return {turned(outputs[0], saved[0], saved[1], /*is_back=*/true), {}, {}};
  }
};

}  // namespace

RotaryPositions::RotaryPositions(std::int64_t context, std::int64_t d, double theta,
                                 const RopeScaling& scaling)
    : table_(std::make_shared<Table>(Table{context, d, theta, scaling})) {}

at::Tensor RotaryPositions::operator()(const at::Tensor& x) const {
  if (!table_->cos.defined()) table_->make(x.device());
  const std::int64_t T = x.size(1);
  return Turned::apply(x, table_->cos.slice(0, 0, T), table_->sin.slice(0, 0, T));
}

namespace {

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
  const at::Tensor normed = x.is_cuda() ? at::rms_norm(x, {x.size(-1)}, weight, epsilon)
                                        : RmsNormFunction::apply(x, weight, epsilon);
  return noted(normed, {{x}, [norm = *this](const auto& from) { return norm(from[0]); }});
}

namespace {

// On the CPU, the last bit of a 16-bit SiLU depends on where in the tensor a number is.
at::Tensor computed(const at::Tensor& values) {
  return values.is_cpu() ? widened(values) : values;
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(computed(gate)).mul_(up).to(gate.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gate = computed(saved[0]), dy = computed(outputs[0]);
    const at::ScalarType type = saved[0].scalar_type();
    const at::Tensor dup = at::silu(gate).mul_(dy).to(type);
    return {at::silu_backward(dy * saved[1], gate).to(type), dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return noted(Swiglu::apply(gate, up),
               {{gate, up}, [](const auto& from) { return swiglu(from[0], from[1]); }});
}

}  // namespace ladder
