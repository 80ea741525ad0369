// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step5_zero1/cost_card.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step6_zero2/cost_card.hpp"
#include "step6_zero2/theory.hpp"

namespace ladder {

std::int64_t gradient_bytes_in_flight(const FlatLayout& layout, std::int64_t num_microbatches) {
  const std::vector<GradientBucket> units = plan_unit_buckets(layout);
  std::int64_t most = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const bool is_first_of_pass = u == 0;
    const std::int64_t before = !is_first_of_pass      ? units[u - 1].numel
                                : num_microbatches > 1 ? units.back().numel
                                                       : 0;
    most = std::max(most, before + units[u].numel);
  }
  return layout.precision.grad_bytes() * most;
}

void add_gradient_sends(SendPlan& plan, const Sharding& sharding) {
  add_reductions(sharding, Wait::kForNext, [&](const Send& send) { plan.each_microbatch(send); });
}

namespace step6 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const Sharding sharding = sharding_of(options, world_size);
  return {.parameters = options.model.precision.param_bytes() * sharding.layout.numel,
          .gradients = options.model.precision.grad_bytes() * sharding.own_numel(),
          .optimizer = optimizer_bytes(options, sharding.own_numel())};
}

StateBytes transient_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return {.gradients = gradient_bytes_in_flight(sharding_of(options, world_size).layout,
                                                options.data.num_microbatches)};
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const Sharding sharding = sharding_of(options, world_size, rank);
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  add_parameter_gathers(plan, sharding);
  add_gradient_sends(plan, sharding);
  plan.each_step(norm_send(StepPhase::kGradients, sharding));
  plan.each_step(norm_send(StepPhase::kEnd, sharding));
  plan.sum_of_doubles(StepPhase::kEnd, kNumStepSums);
  return plan.sends();
}

OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int /*rank*/) {
  return work_on_slices(options, world_size);
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const Sharding sharding = sharding_of(options, world_size);
  const std::int64_t unit = largest_unit(sharding.layout);
  return ladder::working_bytes(options, {reduction_bytes(options, sharding, unit), 4.0 * unit});
}

}  // namespace step6
}  // namespace ladder
