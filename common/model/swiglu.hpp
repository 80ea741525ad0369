#pragma once

#include <ATen/core/Tensor.h>

namespace ladder {

// gate · sigmoid(gate) · up, element by element (Shazeer, arXiv 2002.05202). Saves gate and up, and
// computes the rest again in backward. On the CPU, 16 bits are rounded once.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace ladder
