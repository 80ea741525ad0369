// What a step with sharded optimizer state sends, for the cost cards of the ZeRO steps.
#pragma once

#include "common/optim/flat_layout.hpp"
#include "common/train/sends.hpp"
#include "common/train/trainer.hpp"

namespace ladder {

// The all_gather of sharded_norm(): one double per block of 1024 elements.
Send norm_send(StepPhase phase, const FlatLayout& layout);
// Those of all_gather_parameters(): one of each unit.
void add_parameter_gathers(SendPlan& plan, const FlatLayout& layout);

// The optimizer and the norm of the gradients are about a rank's slices, the norm of the parameters
// about all.
OptimizerWork work_on_slices(const TrainOptions& options, int world_size);

}  // namespace ladder
