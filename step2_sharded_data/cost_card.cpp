// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/train/cost.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"
#include "step2_sharded_data/train.hpp"

namespace ladder::step2 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return reference_ddp_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic = reference_ddp_traffic(options, world_size, rank);
  return traffic += step_scalars_traffic(world_size, rank);
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return reference_ddp_working_bytes(options, world_size, /*num_replicas=*/1);
}

}  // namespace ladder::step2
