// A model's fragments: the parts that DiLoCo averages one at a time.
//
// A fragment is a contiguous piece of the flat buffer and consists of whole tensors, so it is
// averaged in place, in one message. Each parameter is in exactly one fragment. Fragments are about
// equally large, because the largest one decides how much is sent at once.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optim/flat_layout.hpp"

namespace at {
class Tensor;
}

namespace ladder {

struct Fragment {
  std::int64_t start = 0;  // in elements from the start of the flat buffer
  std::int64_t numel = 0;  // padding included

  at::Tensor of(const at::Tensor& flat) const;  // a view [numel] of a buffer with the layout
};

// Cuts the layout into this many fragments, in its order. Throws UsageError if it has fewer
// tensors.
std::vector<Fragment> plan_fragments(const FlatLayout& layout, std::int64_t num_fragments);

}  // namespace ladder
