// GELU by tanh (Hendrycks and Gimpel, arXiv 1606.08415).
#pragma once

#include <ATen/core/Tensor.h>

namespace ladder {

// x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, of each element; any shape. On CPUs with AVX2 and
// without AVX-512, where libtorch's tanh makes it the slowest step between two products, fp32 takes
// a kernel of ours: in a quarter of the time, and with other last bits than at::gelu.
at::Tensor gelu(const at::Tensor& x);

// Computes gelu(x) by our kernel, even where at::gelu is faster; x is fp32 on an x86-64 CPU with
// AVX2.
at::Tensor gelu_with_avx2(const at::Tensor& x);

}  // namespace ladder
