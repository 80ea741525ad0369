// How every kernel here is started: the size of its grid, and the type of its numbers.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>

#include "common/core/check.hpp"

namespace ladder {

#ifndef LADDER_MOST_BLOCKS  // tests/kernels_on_cpu takes few, so that threads have to go on
#define LADDER_MOST_BLOCKS 8192
#endif

inline constexpr int kThreadsPerBlock = 256;

// Blocks for so many threads, of a kernel with a grid-stride loop (fold_kernel.cu); not more than
// keep a GPU busy, since each thread goes on to its next element.
inline unsigned num_blocks_for(std::int64_t num_threads) {
  constexpr std::int64_t kMostBlocks = LADDER_MOST_BLOCKS;
  return static_cast<unsigned>(
      std::min((num_threads + kThreadsPerBlock - 1) / kThreadsPerBlock, kMostBlocks));
}

// Calls body(Number()) with fp32's or a 16-bit type. Throws CheckError for other types.
template <class Body>
void with_float_type(c10::ScalarType type, const Body& body) {
  switch (type) {
    case c10::ScalarType::Float:
      return body(float());
    case c10::ScalarType::BFloat16:
      return body(c10::BFloat16());
    case c10::ScalarType::Half:
      return body(c10::Half());
    default:
      throw CheckError(concat("a kernel takes fp32, bf16 or fp16, not ", type));
  }
}

}  // namespace ladder
