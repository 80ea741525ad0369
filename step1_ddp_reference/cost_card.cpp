// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/train/cost.hpp"
#include "step1_ddp_reference/reference_cost.hpp"
#include "step1_ddp_reference/train.hpp"

namespace ladder::step1 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return reference_ddp_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic = reference_ddp_traffic(options, world_size, rank);
  traffic += scalars_traffic(2, world_size, rank);
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return reference_ddp_working_bytes(options, world_size, /*num_replicas=*/world_size);
}

}  // namespace ladder::step1
