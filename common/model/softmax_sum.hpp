// The arithmetic of cross_entropy_kernels.cu for one row, whichever thread does it. It runs on the
// CPU as well, where a test covers it.
//
// softmax(x)_j = exp(x_j) / Σ exp(x_k), and in fp32 exp(89) overflows. So the sum is relative to
// the largest number so far: when a larger one comes, the sum is scaled down. Two sums merge into
// one, so a row can be read once, in pieces. This is the online softmax (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", arXiv 1805.02867), on which flash attention rests.
#pragma once

#include <cmath>
#include <limits>

#include "common/core/host_device.hpp"

namespace ladder {

// A NaN makes the sum NaN. -inf adds nothing, so it also fills up a piece that is too short; a row
// of nothing else has the loss NaN, as it has in libtorch.
struct SoftmaxSum {
  float max;  // of the numbers so far
  float sum;  // Σ exp(number − max)

  // The sum before the first number. Its maximum is finite because -inf − -inf is NaN.
  LADDER_HOST_DEVICE static SoftmaxSum of_nothing() {
    return {std::numeric_limits<float>::lowest(), 0.0F};
  }

  template <int count>
  LADDER_HOST_DEVICE void add(const float (&numbers)[count]) {
    float new_max = max;
    for (const float number : numbers) new_max = std::fmax(new_max, number);
    sum *= std::exp(max - new_max);
    for (const float number : numbers) sum += std::exp(number - new_max);
    max = new_max;
  }

  LADDER_HOST_DEVICE void merge(const SoftmaxSum& other) {
    const float new_max = std::fmax(max, other.max);
    sum = sum * std::exp(max - new_max) + other.sum * std::exp(other.max - new_max);
    max = new_max;
  }

  // -log softmax of the target's logit.
  LADDER_HOST_DEVICE float loss(float logit_of_target) const {
    return (max - logit_of_target) + std::log(sum);
  }

  // The gradient of `upstream` times the loss with respect to a logit:
  // upstream · (softmax − 1) for the target's, upstream · softmax for every other.
  LADDER_HOST_DEVICE float gradient(float logit, bool is_target, float upstream) const {
    return std::exp(logit - max) * (upstream / sum) - (is_target ? upstream : 0.0F);
  }
};

}  // namespace ladder
