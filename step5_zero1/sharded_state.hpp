// Checkpoints of a model that is spread over the ranks: the same files as those of one process.
//
// A save goes unit by unit. Every rank sends its slice of a unit to rank 0, which writes the unit's
// tensors and frees them before the next unit arrives. So no rank ever holds all of a sharded
// buffer, and ranks other than 0 hold only their own slices. Of several copies, only the first is
// saved. A load needs no messages: every rank reads the file and keeps its part.
//
// Collective: saving what these return (StateTensors::for_each). Construction and load are local.
#pragma once

#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "step5_zero1/shard_group.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

// The tensors of sharded buffers; this rank holds a shard [plan.numel] of each. A shard's name is
// appended to the tensors' names: "exp_avg" makes "wte.weight.exp_avg"; an empty name changes
// nothing. Lifetime: `group` outlives the result.
StateTensors sharded_tensors(const ShardPlan& plan, const std::vector<NamedTensor>& shards,
                             ShardGroup& group);

// What a checkpoint stores of these parameters, in fp32: the optimizer's masters, of which this
// rank holds its slices, or the parameters themselves.
StateTensors stored_parameters(const ShardPlan& plan, const StateTensors& parameters,
                               Optimizer& optimizer, ShardGroup& group);

// For whole parameters on every rank and a sharded optimizer state: steps 5 and 6.
TrainState sharded_state(const FlatModel& model, const ShardPlan& plan, Optimizer& optimizer,
                         BatchStream& batches, ShardGroup& group);

}  // namespace ladder
