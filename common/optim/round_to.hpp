// The rounding of exact sums (exact_sums.hpp), for a CPU and a GPU.
#pragma once

#include <cmath>
#include <limits>

#ifdef __CUDACC__
#define LADDER_HOST_DEVICE __host__ __device__
#else
#define LADDER_HOST_DEVICE
#endif

namespace ladder {

// x as the nearest multiple of the quantum, a power of two. Beyond `most` > 0, which is at most 2^22
// quanta: +infinity, or NaN if x is not finite. Adding 1.5 · 2^23 quanta leaves no bit below a
// quantum, and taking them away again is exact.
LADDER_HOST_DEVICE inline float round_to(float quantum, float most, float x) {
  const float shift = 0x1.8p23F * quantum;
  const float rounded = (x + shift) - shift;
  return std::abs(x) <= most ? rounded : std::numeric_limits<float>::infinity() + (x - x);
}

}  // namespace ladder
