// The loops of gelu.cpp: a file of their own, without libtorch, because they alone are compiled with
// options that vectorize them.
#pragma once

#include <cstdint>

namespace ladder {

// y = gelu(x) by tanh, for `count` elements.
void gelu_loop(const float* x, float* y, std::int64_t count);

// dx = dy · gelu'(x).
void gelu_gradient_loop(const float* x, const float* dy, float* dx, std::int64_t count);

// The same of the exact one.
void exact_gelu_loop(const float* x, float* y, std::int64_t count);
void exact_gelu_gradient_loop(const float* x, const float* dy, float* dx, std::int64_t count);

}  // namespace ladder
