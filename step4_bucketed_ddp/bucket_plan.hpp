// Which gradients are reduced together, in which order.
//
// Backward makes the gradients of the last layers first. So the tensors are gone through from the
// last to the first, and neighbours are put into one bucket until the next one would no longer fit:
//
//   flat gradient   | wte          | wpe   | h.0 …            | h.1 …            | ln_f |
//   backward                                                          <───────────────
//   buckets         |<--- 2 ------------>| |<------ 1 ----------->|<------- 0 ------->|
//
// Neighbours in the layout are neighbours in memory, so a bucket is a range of the flat gradient:
// there is nothing to copy in or out.
//
// A plan is a value, and the same on every rank, as it depends on the layout and the capacity alone.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optim/flat_layout.hpp"

namespace ladder {

struct GradientBucket {
  std::int64_t start = 0;  // of its range in the flat gradient, in elements
  std::int64_t numel = 0;  // padding included: what is sent
  std::vector<std::int64_t>
      tensors;  // indices into FlatLayout::tensors, from the last to the first
};

// In the order in which they are reduced. Every trainable tensor is in one bucket. A bucket that is
// filled exactly is still full; a tensor larger than the capacity has a bucket of its own. A frozen
// tensor has no gradient to send: it is in none and ends the bucket that comes before it.
//
// capacity_bytes counts fp32 gradients, padding included. Throws CheckError if it is not positive.
std::vector<GradientBucket> plan_buckets(const FlatLayout& layout, std::int64_t capacity_bytes);

}  // namespace ladder
