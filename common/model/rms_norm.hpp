#pragma once

#include <ATen/core/Tensor.h>

namespace ladder {

// x / sqrt(mean(x²) + epsilon) · weight over the last dimension (Zhang and Sennrich, arXiv
// 1910.07467): a LayerNorm without mean and bias. In 16 bits, the mean and all sums over tokens are
// in fp32, and x is rounded before it is multiplied by the weight, as in Hugging Face's Llama. Saves
// x, and 4 bytes per token.
struct RmsNorm {
  at::Tensor weight;  // [C]
  double epsilon = 1e-5;
  at::Tensor operator()(const at::Tensor& x) const;  // [..., C] -> [..., C]
};

}  // namespace ladder
