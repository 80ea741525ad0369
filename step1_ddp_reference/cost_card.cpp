// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step1_ddp_reference/cost_card.hpp"
#include "common/model/unit_shapes.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"
#include "step1_ddp_reference/theory.hpp"

namespace ladder {
namespace {

std::int64_t num_parameters(const UnitShape& unit) {
  return plan_flat_layout({unit}, /*precision=*/{}).num_parameters;
}

std::vector<std::int64_t> buckets_of(const TrainOptions& options) {
  return plan_reference_buckets(unit_shapes(options.model), options.model.precision);
}

}  // namespace

StateBytes reference_ddp_state_bytes(const TrainOptions& options) {
  StateBytes bytes = replica_state_bytes(options);
  for (const std::int64_t numel : buckets_of(options))
    bytes.communication += options.model.precision.grad_bytes() * numel;
  return bytes;
}

std::int64_t reference_ddp_working_bytes(const TrainOptions& options, int world_size,
                                         int num_replicas) {
  const StateBytes bytes = reference_ddp_state_bytes(options);
  const double gradients = fold_bytes(options, bytes.communication, 1, world_size);
  return working_bytes(options, {gradients, 2.0 * static_cast<double>(bytes.parameters)},
                       num_replicas);
}

void add_reference_buckets(SendPlan& plan, const TrainOptions& options) {
  const std::vector<UnitShape> units = unit_shapes(options.model);
  auto layer = static_cast<int>(units.size()) - 1;   // that buckets have come to, from the last one
  std::int64_t left = num_parameters(units.back());  // of its elements
  for (const std::int64_t numel : buckets_of(options)) {
    for (left -= numel; left < 0 && layer > 0;)
      left += num_parameters(units[static_cast<std::size_t>(--layer)]);
    plan.each_step({.phase = StepPhase::kAfterBackward,
                    .layer = layer,
                    .operation = CommOp::kAllReduce,
                    .numel = numel,
                    .element_bytes = options.model.precision.grad_bytes(),
                    .wait = Wait::kForPhase});
  }
}

namespace step1 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return reference_ddp_state_bytes(options);
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int /*rank*/) {
  SendPlan plan(steps, {.size = world_size});
  add_reference_buckets(plan, options);
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return reference_ddp_working_bytes(options, world_size, /*num_replicas=*/world_size);
}

}  // namespace step1
}  // namespace ladder
