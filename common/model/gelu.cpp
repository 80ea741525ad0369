#include "common/model/gelu.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/model/gelu_loops.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kGrain = 32768;  // elements for a thread, at least

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    RECORD_USER_SCOPE("gelu");
    const at::Tensor x = given.contiguous();
    context->save_for_backward({x});
    at::Tensor y = at::empty_like(x);
    const float* const from = x.const_data_ptr<float>();
    float* const to = y.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      gelu_loop(from + begin, to + begin, end - begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    RECORD_USER_SCOPE("gelu_backward");
    const at::Tensor x = context->get_saved_variables()[0], dy = outputs[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    const float *const from = x.const_data_ptr<float>(), *const by = dy.const_data_ptr<float>();
    float* const to = dx.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      gelu_gradient_loop(from + begin, by + begin, to + begin, end - begin);
    });
    return {dx};
  }
};

}  // namespace

at::Tensor gelu_with_avx2(const at::Tensor& x) {
  return Gelu::apply(x);
}

at::Tensor gelu(const at::Tensor& x) {
  static const bool is_faster = at::get_cpu_capability() == "AVX2";
  return is_faster && x.is_cpu() && x.scalar_type() == at::kFloat ? gelu_with_avx2(x)
                                                                  : at::gelu(x, "tanh");
}

}  // namespace ladder
