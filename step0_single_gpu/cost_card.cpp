// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step0_single_gpu/theory.hpp"

#include "common/train/cost.hpp"
#include "common/train/layout.hpp"
#include "common/train/sends.hpp"
#include "step0_single_gpu/oracle_options.hpp"

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
  const std::int64_t num_ranks = options.get<OracleOptions>().simulate_ranks;
  const double sums_over_ranks =
      4.0 * static_cast<double>(most_waiting_sums(num_ranks) * layout_of(options).numel);
  return ladder::working_bytes(options, {.in_backward = sums_over_ranks, .after = sums_over_ranks},
                               num_ranks);
}

}  // namespace ladder::step0
