// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step1_ddp_reference/cost_card.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step2_sharded_data/theory.hpp"

namespace ladder::step2 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return reference_ddp_state_bytes(options);
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int /*rank*/) {
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  add_reference_buckets(plan, options);
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return reference_ddp_working_bytes(options, world_size, /*num_replicas=*/1);
}

}  // namespace ladder::step2
