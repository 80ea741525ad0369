// The rounding of exact sums (quanta.hpp), for a CPU and a GPU.
#pragma once

#include <cmath>
#include <limits>

#include "common/core/host_device.hpp"

namespace ladder {

// x as the nearest multiple of the quantum, a power of two, if |x| is at most 2^22 quanta. Adding
// 1.5 · 2^23 quanta leaves no bit below a quantum, and taking them away again is exact.
LADDER_HOST_DEVICE inline float round_within(float quantum, float x) {
  const float shift = 0x1.8p23F * quantum;
  return (x + shift) - shift;
}

// Rounds x if |x| <= most, which is at most 2^22 quanta; beyond, it becomes +infinity, or NaN if x
// is not finite.
LADDER_HOST_DEVICE inline float round_to(float quantum, float most, float x) {
  if (std::abs(x) <= most) return round_within(quantum, x);
  return std::numeric_limits<float>::infinity() + (x - x);
}

}  // namespace ladder
