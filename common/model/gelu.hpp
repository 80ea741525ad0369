// GELU, by tanh and exactly (Hendrycks and Gimpel, arXiv 1606.08415).
#pragma once

#include <ATen/core/Tensor.h>

#include "common/model/model_options.hpp"

namespace ladder {

// Of each element, any shape:
//
//   kTanh    x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. On CPUs with AVX2 and without AVX-512,
//            where libtorch's tanh makes it the slowest step between two products, fp32 takes a
//            kernel of ours: in a quarter of the time, and with other last bits than at::gelu.
//   kExact   x · Φ(x), with the normal distribution's Φ. On CPUs with AVX2, always a kernel of
//            ours, off by at most 3e-7, or so much of a value above 1: which bits at::gelu gives an
//            element can depend on how many there are, and on where it lies among them.
at::Tensor gelu(const at::Tensor& x, GeluForm form);

// Computes gelu(x, form) by our kernel, even where at::gelu is faster; x is fp32, bf16 or fp16, on
// an x86-64 CPU with AVX2.
at::Tensor gelu_with_avx2(const at::Tensor& x, GeluForm form);

}  // namespace ladder
