// What libtorch's Reducer costs: pure formulas over its plan of buckets.
#pragma once

#include "common/comm/traffic.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// A replica plus a copy of its gradients in the Reducer's buckets: another time the bytes of the
// gradients.
StateBytes reference_ddp_state_bytes(const TrainOptions& options);

// One all-reduce per bucket, without padding.
Traffic reference_ddp_traffic(const TrainOptions& options, int world_size, int rank);

}  // namespace ladder
