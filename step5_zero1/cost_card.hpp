// What a step with sharded optimizer state sends, for the cost cards of the ZeRO steps.
#pragma once

#include <cstdint>
#include <functional>

#include "common/optim/flat_layout.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"

namespace ladder {

// How a rank's state is cut, and with whom it works.
struct Sharding {
  FlatLayout layout;
  RankGroup group;   // the ranks that share a copy with it
  RankGroup copies;  // the ranks that have the same slices
  std::int64_t own_numel() const { return layout.numel / group.size; }
};
Sharding sharding_of(const TrainOptions& options, int world_size, int rank = 0);

// Sends of the gradients of units: one reduce_scatter each, and one all-reduce if there are copies.
// `add` adds one to the plan.
void add_reductions(const Sharding& sharding, Wait wait,
                    const std::function<void(const Send&)>& add);
// The all_gather of sharded_norm(): one double per block of 1024 elements.
Send norm_send(StepPhase phase, const Sharding& sharding);
// Those of ParameterGather: one of each unit, at the start of a step.
void add_parameter_gathers(SendPlan& plan, const Sharding& sharding);

// Where the pieces of other ranks arrive while so many elements are reduced.
double reduction_bytes(const TrainOptions& options, const Sharding& sharding, std::int64_t numel);

// The optimizer and both norms are about a rank's slices.
OptimizerWork work_on_slices(const TrainOptions& options, int world_size);

}  // namespace ladder
