// Which gradients libtorch's Reducer sends together: the plan, without a single rank.
//
// Backward finishes the gradients of the last tensors first. So the tensors are walked in reverse
// order, and each goes into the open bucket. A bucket is closed as soon as it holds its capacity or
// more: 1 MiB for the first, so that something can be sent early, and 25 MiB for all others.
//
//   tensors, as forward uses them   wte  wpe  h.0  h.1  h.2  h.3  ln_f
//   buckets, sent from the right    └─ 2 ──┘ └─── 1 ──┘ └──── 0 ─────┘
//
// What remains is the last bucket. A bucket may exceed its capacity, by less than one tensor; in
// step 4 it will not. Frozen tensors are in none. Cuts fall between tensors, inside a block too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/core/unit.hpp"

namespace ladder {

// The elements of each bucket, in the order in which they are sent; no bucket if nothing is
// trainable. Reads shapes and dtypes only: the tensors may be on the meta device.
std::vector<std::int64_t> plan_reference_buckets(const std::vector<Unit>& units);

// The same as libtorch wants it: for each bucket the indices of its tensors, where `tensors` are
// the trainable ones in reverse order; at least one.
std::vector<std::vector<std::size_t>> assign_reference_buckets(
    const std::vector<at::Tensor>& tensors);

}  // namespace ladder
