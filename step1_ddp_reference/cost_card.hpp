// What DistributedDataParallel costs, for the cost cards of steps that train with it.
#pragma once

#include <cstdint>

#include "common/train/options/options.hpp"
#include "common/train/report/state_bytes.hpp"
#include "common/train/sends.hpp"

namespace ladder {

// A replica plus a copy of its gradients in the Reducer's buckets: another time the bytes of the
// gradients.
StateBytes reference_ddp_state_bytes(const TrainOptions& options);

// On top of that, at most; of `num_replicas` this rank reads the token ids. libtorch's broadcast of
// the parameters, before training, has a copy of 250 MiB of them, and the next one's.
std::int64_t reference_ddp_working_bytes(const TrainOptions& options, int world_size,
                                         int num_replicas);

// One all-reduce per bucket, without padding.
void add_reference_buckets(SendPlan& plan, const TrainOptions& options);

}  // namespace ladder
