// The pieces of a weight, as tensors. Which elements a part has is known beforehand (cut.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "common/core/unit_shape.hpp"

namespace ladder {

// Where the part is in the whole, in the same memory: [outer, its own n, inner].
at::Tensor place_of(const TensorPart& part, const at::Tensor& whole);

// A contiguous copy of it, of the whole's shape but for the dimension that is cut.
at::Tensor piece_of(const TensorPart& part, const at::Tensor& whole);

}  // namespace ladder
