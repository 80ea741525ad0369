// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step0_single_gpu/train.hpp"

#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder::step0 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  check_alone(world_size);
  return replica_state_bytes(options);
}

std::vector<Send> sends(const TrainOptions& /*options*/, const StepsTaken& /*steps*/,
                        int world_size, int /*rank*/) {
  check_alone(world_size);
  return {};
}

std::int64_t working_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return ladder::working_bytes(options);
}

}  // namespace ladder::step0
