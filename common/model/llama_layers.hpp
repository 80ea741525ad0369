#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/rope_scaling.hpp"

namespace ladder {

// Rotary positions (Su et al., arXiv 2104.09864), in the form of Hugging Face's Llama: at position
// t, the channels i and i + d/2 of a head are a point of the plane, turned by the angle
// t / theta^(2i/d), or a scaled one. So the product of a query and a key depends only on how far
// apart they are.
//
// Copies share one table of cosines and sines, 4·d·context bytes in fp32, which the first call
// makes. Threads: all calls on copies of one object come from one thread at a time.
class RotaryPositions {
 public:
  // d is even.
  RotaryPositions(std::int64_t context, std::int64_t d, double theta,
                  const RopeScaling& scaling = {});

  // [B, T, H, d] -> the same, T ≤ context. Computed in fp32 at least. Saves nothing for backward.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  struct Table;
  std::shared_ptr<Table> table_;
};

// x / sqrt(mean(x²) + epsilon) · weight over the last dimension (Zhang and Sennrich, arXiv
// 1910.07467): a LayerNorm without mean and bias. In 16 bits, the mean and all sums over tokens are
// in fp32, and x is rounded before it is multiplied by the weight, as in Hugging Face's Llama. Saves
// x, and 4 bytes per token.
struct RmsNorm {
  at::Tensor weight;  // [C]
  double epsilon = 1e-5;
  at::Tensor operator()(const at::Tensor& x) const;  // [..., C] -> [..., C]

  std::vector<at::Tensor> weights() const { return {weight}; }
  RmsNorm with(const std::vector<at::Tensor>& others) const { return {others[0], epsilon}; }
};

// gate · sigmoid(gate) · up, element by element (Shazeer, arXiv 2002.05202). Saves gate and up, and
// computes the rest again in backward. On the CPU, 16 bits are rounded once.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace ladder
