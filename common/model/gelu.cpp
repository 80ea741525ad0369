#include "common/model/gelu.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <bit>
#include <cmath>

#ifdef __x86_64__
#define LADDER_AVX2 __attribute__((target("avx2,fma")))
#else
#define LADDER_AVX2
#endif

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (1 + tanh u) / 2 is 1 / (1 + exp(−2u)).
constexpr float kTwiceSlope = 1.5957691216057308F, kCube = 0.044715F;

// e^x of |x| ≤ 87, farther out that of ±87: x = n·ln 2 + r, where the compiler can make e^r, a
// polynomial (Cephes' expf), and 2ⁿ, the bits of an exponent, for eight elements at once.
__attribute__((always_inline)) inline float exp_of(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 87.0F ? 87.0F : x;
  const float n = std::nearbyint(x * 1.44269504F);
  const float r = std::fma(n, 2.12194440e-4F, std::fma(n, -0.693359375F, x));
  float p = std::fma(1.9875691500e-4F, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  return std::fma(p, r * r, r + 1) * std::bit_cast<float>((static_cast<int>(n) + 127) << 23);
}

__attribute__((always_inline)) inline float exp_of_minus_2u(float x) {
  return exp_of(-kTwiceSlope * x * std::fma(kCube, x * x, 1.0F));
}

LADDER_AVX2 void compute(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] / (1 + exp_of_minus_2u(x[i]));
}

// With s = 1 / (1 + e), e = exp(−2u): d(x·s)/dx = s · (1 + x · e·s · 2 du/dx).
LADDER_AVX2 void compute_gradient(const float* x, const float* dy, float* dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float e = exp_of_minus_2u(x[i]), s = 1 / (1 + e);
    const float twice_du = kTwiceSlope * std::fma(3 * kCube, x[i] * x[i], 1.0F);
    dx[i] = dy[i] * s * std::fma(x[i] * (e * s), twice_du, 1.0F);
  }
}

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
      compute(from + begin, to + begin, end - begin);
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
      compute_gradient(from + begin, by + begin, to + begin, end - begin);
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
