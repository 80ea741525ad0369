// How every kernel here is started: threads that step through the elements with the grid's stride.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ladder {

inline constexpr int kThreadsPerBlock = 256;

// Blocks for so many threads; not more than keep a GPU busy, since each thread goes on to the next
// element.
inline unsigned num_blocks_for(std::int64_t num_threads) {
  constexpr std::int64_t kMostBlocks = 8192;
  return static_cast<unsigned>(
      std::min((num_threads + kThreadsPerBlock - 1) / kThreadsPerBlock, kMostBlocks));
}

}  // namespace ladder
