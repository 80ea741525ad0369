#include "common/model/swiglu.hpp"

#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/core/precision.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
  return Swiglu::apply(gate, up);
}

}  // namespace ladder
