#include "common/model/gelu.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "common/core/torch_types.hpp"
#include "common/model/gelu_loops.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kGrain = 32768;  // elements for a thread, at least

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, GeluForm form) {
    RECORD_USER_SCOPE("gelu");
    const at::Tensor narrow = given.contiguous(), x = widened(narrow);
    context->save_for_backward({narrow});
    context->saved_data["is_exact"] = form == GeluForm::kExact;
    at::Tensor y = at::empty_like(x);
    const float* const from = x.const_data_ptr<float>();
    float* const to = y.mutable_data_ptr<float>();
    const auto loop = form == GeluForm::kExact ? exact_gelu_loop : gelu_loop;
    at::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      loop(from + begin, to + begin, end - begin);
    });
    return y.to(given.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    RECORD_USER_SCOPE("gelu_backward");
    const at::Tensor narrow = context->get_saved_variables()[0], x = widened(narrow);
    const at::Tensor dy = widened(outputs[0]).contiguous();
    const bool is_exact = context->saved_data["is_exact"].toBool();
    const auto loop = is_exact ? exact_gelu_gradient_loop : gelu_gradient_loop;
    at::Tensor dx = at::empty_like(x);
    const float *const from = x.const_data_ptr<float>(), *const by = dy.const_data_ptr<float>();
    float* const to = dx.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      loop(from + begin, by + begin, to + begin, end - begin);
    });
    return {dx.to(narrow.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor gelu_with_avx2(const at::Tensor& x, GeluForm form) {
  return Gelu::apply(x, form);
}

at::Tensor gelu(const at::Tensor& x, GeluForm form) {
  static const std::string cpu = at::get_cpu_capability();
  const bool is_exact = form == GeluForm::kExact;
  const bool is_own =
      x.is_cpu() && (is_exact ? cpu.starts_with("AVX") && x.scalar_type() != at::kDouble
                              : cpu == "AVX2" && x.scalar_type() == at::kFloat);
  return is_own ? gelu_with_avx2(x, form) : at::gelu(x, is_exact ? "none" : "tanh");
}

}  // namespace ladder
