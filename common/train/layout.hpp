// Where the tensors of the options' model lie in a flat buffer. No tensor is made for it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/part_plan.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// Units are padded to multiples of unit_multiple elements.
FlatLayout layout_of(const TrainOptions& options, std::int64_t unit_multiple = 1);

// The layout of a piece of the model: these layers of its list, in ascending order, and of what is
// cut in them, these parts (unit_shapes.hpp).
FlatLayout layout_of(const TrainOptions& options, const std::vector<std::int64_t>& layers,
                     const Parts& parts);

// The same options for a model that is all fp32.
TrainOptions in_fp32(TrainOptions options);

}  // namespace ladder
