// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "common/comm/traffic_theory.hpp"
#include "common/train/build_model.hpp"
#include "common/train/cost.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"
#include "step1_ddp_reference/train.hpp"

namespace ladder {
namespace {

std::vector<std::int64_t> bucket_numels(const TrainOptions& options) {
  return plan_reference_buckets(model_builder(options)({}, at::kMeta).units());
}

}  // namespace

StateBytes reference_ddp_state_bytes(const TrainOptions& options) {
  StateBytes bytes = replica_state_bytes(options);
  for (const std::int64_t numel : bucket_numels(options))
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

Traffic reference_ddp_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic;
  for (const std::int64_t numel : bucket_numels(options)) {
    traffic += all_reduce_traffic(numel, options.model.precision.grad_bytes(), world_size, rank);
  }
  return traffic;
}

namespace step1 {

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  return reference_ddp_state_bytes(options);
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  Traffic traffic = reference_ddp_traffic(options, world_size, rank);
  traffic += scalars_traffic(2, world_size, rank);
  return traffic;
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  return reference_ddp_working_bytes(options, world_size, /*num_replicas=*/world_size);
}

}  // namespace step1
}  // namespace ladder
