// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step4_bucketed_ddp/theory.hpp"

namespace ladder::step4 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return replica_state_bytes(options);
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int /*rank*/) {
  const FlatLayout layout = layout_of(options);
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  for (const GradientBucket& bucket : plan_buckets(layout, bucket_capacity_bytes(options))) {
    plan.each_step({.phase = StepPhase::kAfterBackward,
                    .layer = layer_at(layout, bucket.start),
                    .operation = CommOp::kAllReduce,
                    .numel = bucket.numel,
                    .element_bytes = layout.precision.grad_bytes(),
                    .wait = Wait::kForPhase});
  }
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const double buckets = fold_bytes(options, layout_of(options).numel,
                                    options.model.precision.grad_bytes(), world_size);
  return ladder::working_bytes(options, {.in_backward = buckets});
}

}  // namespace ladder::step4
