// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/optim/norm.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step5_zero1/cost_card.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step5_zero1/train.hpp"

namespace ladder {

Send norm_send(StepPhase phase, const FlatLayout& layout) {
  return {.phase = phase,
          .operation = CommOp::kAllGather,
          .numel = layout.numel / kNormBlock,
          .element_bytes = sizeof(double)};
}

void add_parameter_gathers(SendPlan& plan, const FlatLayout& layout) {
  for (const GradientBucket& unit : plan_unit_buckets(layout)) {
    plan.each_step({.phase = StepPhase::kUpdated,
                    .operation = CommOp::kAllGather,
                    .numel = unit.numel,
                    .element_bytes = layout.precision.param_bytes(),
                    .wait = Wait::kForPhase});
  }
}

OptimizerWork work_on_slices(const TrainOptions& options, int world_size) {
  const auto numel = static_cast<double>(layout_of(options, shard_multiple(world_size)).numel);
  return {.updated = numel / world_size, .normed = numel / world_size + numel};
}

namespace step5 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t numel = layout_of(options, shard_multiple(world_size)).numel;
  return {.parameters = options.model.precision.param_bytes() * numel,
          .gradients = options.model.precision.grad_bytes() * numel,
          .optimizer = optimizer_bytes(options, numel / world_size)};
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  for (const GradientBucket& unit : plan_unit_buckets(layout)) {
    plan.each_step({.phase = StepPhase::kAfterBackward,
                    .layer = layer_at(layout, unit.start),
                    .operation = CommOp::kReduceScatter,
                    .numel = unit.numel,
                    .element_bytes = layout.precision.grad_bytes(),
                    .wait = Wait::kForPhase});
  }
  plan.each_step(norm_send(StepPhase::kGradients, layout));
  add_parameter_gathers(plan, layout);
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int /*rank*/) {
  return work_on_slices(options, world_size);
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = layout_of(options, shard_multiple(world_size));
  const std::int64_t bytes_each = options.model.precision.grad_bytes();
  const double all = fold_bytes(options, layout.numel, bytes_each, world_size);
  return ladder::working_bytes(options, {.after = std::max(all, 4.0 * largest_unit(layout))});
}

}  // namespace step5
}  // namespace ladder
