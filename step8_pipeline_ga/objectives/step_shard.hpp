// Which replica reads which sample.
#pragma once

#include "common/comm/mesh.hpp"
#include "common/train/options/options.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {

// The samples of this replica, as in step 2. Where a teacher balances each microbatch by itself,
// the last sample that an epoch has for this replica is left out if it would be a microbatch of its
// own: balanced alone, it belongs to every prototype alike.
DataShard step_shard(const TrainOptions& options, const Mesh& mesh);

}  // namespace ladder
