// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/comm/traffic_theory.hpp"
#include "common/train/cost.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step4_bucketed_ddp/train.hpp"

namespace ladder::step4 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return replica_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic = step_scalars_traffic(world_size, rank);
  const std::int64_t capacity_bytes = bucket_capacity_bytes(options);
  for (const GradientBucket& bucket : plan_buckets(layout_of(options), capacity_bytes)) {
    traffic +=
        all_reduce_traffic(bucket.numel, options.model.precision.grad_bytes(), world_size, rank);
  }
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const double buckets = fold_bytes(options, layout_of(options).numel,
                                    options.model.precision.grad_bytes(), world_size);
  return ladder::working_bytes(options, {.in_backward = buckets});
}

}  // namespace ladder::step4
