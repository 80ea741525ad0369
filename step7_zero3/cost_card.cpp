// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step5_zero1/cost_card.hpp"
#include "step6_zero2/cost_card.hpp"
#include "step7_zero3/cost_card.hpp"
#include "step7_zero3/theory.hpp"

namespace ladder {

std::int64_t peak_whole_numel(const FlatLayout& layout, int prefetch, bool is_tied) {
  const auto num_units = static_cast<std::int64_t>(layout.units.size());
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < num_units; ++first) {
    const std::int64_t end = std::min(first + prefetch + 1, num_units);
    std::int64_t whole = is_tied && first > 0 ? layout.units[0].numel : 0;
    for (std::int64_t u = first; u < end; ++u)
      whole += layout.units[static_cast<std::size_t>(u)].numel;
    most = std::max(most, whole);
  }
  return most;
}

namespace step7 {
namespace {

// Forward and backward need one unit after the other, and each is gathered some units ahead. The last
// one is still whole when backward begins, and the embedding's backward reads no parameter.
void add_unit_gathers(SendPlan& plan, const Sharding& sharding, int num_ahead) {
  const FlatLayout& layout = sharding.layout;
  const int last = static_cast<int>(layout.units.size()) - 1;
  const auto gather = [&](StepPhase phase, int unit, int before_layer) {
    plan.each_microbatch({.phase = phase,
                          .layer = before_layer,
                          .operation = CommOp::kAllGather,
                          .numel = layout.units[static_cast<std::size_t>(unit)].numel,
                          .element_bytes = layout.precision.param_bytes(),
                          .wait = Wait::kForLayer,
                          .needed_by = unit,
                          .group = sharding.group});
  };
  for (int unit = 0; unit <= last; ++unit)
    gather(StepPhase::kBeforeForward, unit, std::max(unit - num_ahead, 0));
  for (int unit = last - 1; unit > 0; --unit)
    gather(StepPhase::kBeforeBackward, unit, std::min(unit + num_ahead, last));
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const std::int64_t own = sharding_of(options, world_size).own_numel();
  return {.parameters = options.model.precision.param_bytes() * own,
          .gradients = options.model.precision.grad_bytes() * own,
          .optimizer = optimizer_bytes(options, own)};
}

StateBytes transient_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const FlatLayout layout = sharding_of(options, world_size).layout;
  const int prefetch = options.get<PrefetchOptions>().num_units;
  return {.parameters = layout.precision.param_bytes() *
                        peak_whole_numel(layout, prefetch, options.model.tie_embeddings),
          .gradients = gradient_bytes_in_flight(layout, options.data.num_microbatches)};
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const Sharding sharding = sharding_of(options, world_size, rank);
  SendPlan plan(steps, {.size = world_size});
  plan.sum_of_doubles(StepPhase::kStart, kNumTargets);
  add_unit_gathers(plan, sharding, options.get<PrefetchOptions>().num_units);
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

}  // namespace step7
}  // namespace ladder
