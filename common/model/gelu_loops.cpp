#include "common/model/gelu_loops.hpp"

#include <bit>
#include <cmath>

#ifdef __x86_64__
#define LADDER_AVX2 __attribute__((target("avx2,fma")))
#else
#define LADDER_AVX2
#endif

namespace ladder {
namespace {

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

// Φ(x), given e^(−x²/2). The smaller one of Φ(x) and Φ(−x) is off by less than 8e-8 (Abramowitz and
// Stegun, 7.1.26).
__attribute__((always_inline)) inline float normal_below(float x, float bell) {
  const float t = 1 / std::fma(0.23164189F, std::fabs(x), 1.0F);  // 0.3275911 / √2
  float p = std::fma(1.061405429F, t, -1.453152027F);
  p = std::fma(p, t, 1.421413741F);
  p = std::fma(p, t, -0.284496736F);
  p = std::fma(p, t, 0.254829592F);
  const float tail = 0.5F * p * t * bell;
  return x < 0 ? tail : 1 - tail;
}

}  // namespace

LADDER_AVX2 void gelu_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] / (1 + exp_of_minus_2u(x[i]));
}

// With s = 1 / (1 + e), e = exp(−2u): d(x·s)/dx = s · (1 + x · e·s · 2 du/dx).
LADDER_AVX2 void gelu_gradient_loop(const float* x, const float* dy, float* dx,
                                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float e = exp_of_minus_2u(x[i]), s = 1 / (1 + e);
    const float twice_du = kTwiceSlope * std::fma(3 * kCube, x[i] * x[i], 1.0F);
    dx[i] = dy[i] * s * std::fma(x[i] * (e * s), twice_du, 1.0F);
  }
}

LADDER_AVX2 void exact_gelu_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = x[i] * normal_below(x[i], exp_of(-0.5F * x[i] * x[i]));
}

// d(x·Φ(x))/dx = Φ(x) + x · e^(−x²/2) / √(2π).
LADDER_AVX2 void exact_gelu_gradient_loop(const float* x, const float* dy, float* dx,
                                          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float bell = exp_of(-0.5F * x[i] * x[i]);
    dx[i] = dy[i] * std::fma(0.39894228F * x[i], bell, normal_below(x[i], bell));
  }
}

}  // namespace ladder
