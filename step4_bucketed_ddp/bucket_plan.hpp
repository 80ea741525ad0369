// Which gradients are reduced together, and in which order.
//
// Backward computes the gradients of the last layers first. So the plan goes through the tensors
// from last to first, and puts neighbors into one bucket until the next one would no longer fit:
//
//   flat gradient   | wte          | wpe   | h.0 …            | h.1 …            | ln_f |
//   backward                                                          <───────────────
//   buckets         |<--- 2 ------------>| |<------ 1 ----------->|<------- 0 ------->|
//
// Neighbors in the layout are neighbors in memory, so a bucket is a range of the flat gradient and
// nothing is copied in or out.
//
// A plan is a value, the same on every rank: it depends only on the layout and the capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optim/flat_layout.hpp"

namespace ladder {

struct GradientBucket {
  std::int64_t start = 0;             // where its range of the flat gradient begins, in elements
  std::int64_t numel = 0;             // elements that are sent, padding included
  std::vector<std::int64_t> tensors;  // indices into FlatLayout::tensors, from last to first
};

// Returns the buckets in the order in which they are reduced. Every trainable tensor is in exactly
// one. A bucket may be filled exactly to its capacity; a larger tensor gets a bucket of its own. A
// frozen tensor has no gradient to send: it is in no bucket and ends the open one.
//
// capacity_bytes counts gradients, padding included. Throws CheckError if it is not positive.
std::vector<GradientBucket> plan_buckets(const FlatLayout& layout, std::int64_t capacity_bytes);

}  // namespace ladder
