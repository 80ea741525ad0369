// What libtorch's Reducer costs: pure formulas over its plan of buckets.
#pragma once

#include "common/comm/traffic.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// A replica plus a copy of its gradients in the Reducer's buckets: another time the bytes of the
// gradients.
StateBytes reference_ddp_state_bytes(const TrainOptions& options);

// On top of that, at most; of `num_replicas` this rank reads the token ids. libtorch's broadcast of
// the parameters, before training, has a copy of 250 MiB of them, and the next one's.
std::int64_t reference_ddp_working_bytes(const TrainOptions& options, int world_size,
                                         int num_replicas);

// One all-reduce per bucket, without padding.
Traffic reference_ddp_traffic(const TrainOptions& options, int world_size, int rank);

}  // namespace ladder
