// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step3_naive_dp/theory.hpp"

namespace ladder::step3 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return replica_state_bytes(options);
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int /*rank*/) {
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  for (const FlatTensor& tensor : layout_of(options).tensors) {
    plan.each_step({.phase = StepPhase::kGradients,
                    .operation = CommOp::kAllReduce,
                    .numel = tensor.numel,
                    .element_bytes = options.model.precision.grad_bytes()});
  }
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  double largest = 0;
  for (const FlatTensor& tensor : layout_of(options).tensors) {
    largest = std::max(largest, fold_bytes(options, tensor.numel,
                                           options.model.precision.grad_bytes(), world_size));
  }
  return ladder::working_bytes(options, {.after = largest});
}

}  // namespace ladder::step3
