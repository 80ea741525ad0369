// Building blocks of the steps' cost cards: pure formulas that allocate no tensor.
#pragma once

#include "common/comm/traffic.hpp"
#include "common/train/build_model.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// A whole replica, per element of the layout: in fp32, 4 bytes each for parameters and gradients,
// and 8 for AdamW's two moments (0 for SGD); with 16-bit parameters 2, 4, and 4 more for their
// masters.
StateBytes replica_state_bytes(const TrainOptions& options);

// The optimizer state for `numel` elements: AdamW's two moments, and masters if there are any.
std::int64_t optimizer_bytes(const TrainOptions& options, std::int64_t numel);

// One all-reduce of `count` doubles: the scalars of a step.
Traffic scalars_traffic(std::int64_t count, int world_size, int rank);

}  // namespace ladder
