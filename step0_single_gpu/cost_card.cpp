// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/core/check.hpp"
#include "common/train/cost.hpp"
#include "step0_single_gpu/train.hpp"

namespace ladder::step0 {

void check_alone(int world_size) {
  check_usage(world_size == 1, "step 0 runs on one rank, not on ", world_size,
              "; --simulate-ranks ", world_size, " plays them in one process");
}

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  check_alone(world_size);
  return replica_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& /*options*/, int world_size, int /*rank*/) {
  check_alone(world_size);
  return {};
}

}  // namespace ladder::step0
