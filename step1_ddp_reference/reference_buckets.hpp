// Which gradients libtorch's Reducer sends together: the plan, as a pure value.
//
// Backward finishes the gradients of the last tensors first. So the plan goes through the tensors
// in reverse order and puts each into the open bucket. A bucket is closed as soon as it holds its
// capacity or more: 1 MiB for the first, so that sending can start early, 25 MiB for the others.
//
//   tensors, as forward uses them   wte  wpe  h.0  h.1  h.2  h.3  ln_f
//   buckets, sent from the right    └─ 2 ──┘ └─── 1 ──┘ └──── 0 ─────┘
//
// Whatever remains is the last bucket. A bucket may exceed its capacity, by less than one tensor;
// in step 4 it may not. Frozen tensors are in no bucket. A block may be split between tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/precision.hpp"
#include "common/core/unit_shape.hpp"

namespace at {
class Tensor;
}

namespace ladder {

inline constexpr std::int64_t kFirstReferenceBucketBytes = 1 << 20;
inline constexpr std::int64_t kReferenceBucketBytes = 25 << 20;

// The number of elements in each bucket, in the order in which buckets are sent; empty if nothing
// is trainable. Counts the bytes of parameters, as libtorch does.
std::vector<std::int64_t> plan_reference_buckets(const std::vector<UnitShape>& units,
                                                 const Precision& precision);

// libtorch's own plan: for each bucket, the indices of its tensors. `tensors` are the trainable ones
// in reverse order, at least one. A test compares the two.
std::vector<std::vector<std::size_t>> assign_reference_buckets(
    const std::vector<at::Tensor>& tensors);

}  // namespace ladder
