// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step5_zero1/cost_card.hpp"
#include "step5_zero1/shard_options.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step5_zero1/theory.hpp"

namespace ladder {

Sharding sharding_of(const TrainOptions& options, int world_size, int rank) {
  const int num_ranks = shard_ranks_of(options, world_size);
  return {
      .layout = layout_of(options, shard_multiple(num_ranks)),
      .group = {.first = rank / num_ranks * num_ranks, .size = num_ranks},
      .copies = {.first = rank % num_ranks, .stride = num_ranks, .size = world_size / num_ranks}};
}

void add_reductions(const Sharding& sharding, Wait wait,
                    const std::function<void(const Send&)>& add) {
  for (const GradientBucket& unit : plan_unit_buckets(sharding.layout)) {
    Send send = {.phase = StepPhase::kAfterBackward,
                 .layer = layer_at(sharding.layout, unit.start),
                 .operation = CommOp::kReduceScatter,
                 .numel = unit.numel,
                 .element_bytes = sharding.layout.precision.grad_bytes(),
                 .wait = wait,
                 .group = sharding.group};
    add(send);
    if (sharding.copies.size == 1) continue;
    send.operation = CommOp::kAllReduce;
    send.numel /= sharding.group.size;
    send.group = sharding.copies;
    add(send);
  }
}

Send norm_send(StepPhase phase, const Sharding& sharding) {
  return {.phase = phase,
          .operation = CommOp::kAllGather,
          .numel = sharding.layout.numel / kNormBlock,
          .element_bytes = sizeof(double),
          .group = sharding.group};
}

void add_parameter_gathers(SendPlan& plan, const Sharding& sharding) {
  const FlatLayout& layout = sharding.layout;
  for (const FlatUnit& unit : layout.units) {
    if (!has_trainable(layout, unit)) continue;
    plan.each_step({.phase = StepPhase::kStart,
                    .operation = CommOp::kAllGather,
                    .numel = unit.numel,
                    .element_bytes = layout.precision.param_bytes(),
                    .wait = Wait::kForLayer,
                    .needed_by = layer_at(layout, unit.start),
                    .group = sharding.group});
  }
}

double reduction_bytes(const TrainOptions& options, const Sharding& sharding, std::int64_t numel) {
  const std::int64_t bytes_each = sharding.layout.precision.grad_bytes();
  return fold_bytes(options, numel, bytes_each, sharding.group.size) +
         fold_bytes(options, numel / sharding.group.size, bytes_each, sharding.copies.size);
}

OptimizerWork work_on_slices(const TrainOptions& options, int world_size) {
  const auto own = static_cast<double>(sharding_of(options, world_size).own_numel());
  return {.updated = own, .normed = 2 * own};
}

namespace step5 {

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const Sharding sharding = sharding_of(options, world_size);
  const std::int64_t numel = sharding.layout.numel;
  return {.parameters = options.model.precision.param_bytes() * numel,
          .gradients = options.model.precision.grad_bytes() * numel,
          .optimizer = optimizer_bytes(options, sharding.own_numel())};
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const Sharding sharding = sharding_of(options, world_size, rank);
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  add_parameter_gathers(plan, sharding);
  add_reductions(sharding, Wait::kForPhase, [&](const Send& send) { plan.each_step(send); });
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
  const double all = reduction_bytes(options, sharding, sharding.layout.numel);
  return ladder::working_bytes(options,
                               {.after = std::max(all, 4.0 * largest_unit(sharding.layout))});
}

}  // namespace step5
}  // namespace ladder
