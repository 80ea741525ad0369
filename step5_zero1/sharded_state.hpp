// Checkpoints of a model that is spread over the ranks: the same files as those of one process.
//
// Saving goes unit by unit. Every rank sends its slice of a unit to rank 0, which writes the unit's
// tensors and lets go of them before the next unit comes. So no rank ever holds the whole of what is
// sharded, and all but rank 0 hold nothing beside their own. Loading needs no messages: every rank
// reads the file and keeps its part.
//
// Collective: to save what these return (StateTensors::for_each). To make them, and to load, is
// local.
#pragma once

#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/checkpoint.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

// The tensors of buffers of which this rank holds shards [plan.numel]. A shard's name is appended to
// the tensors' names: "exp_avg" makes "wte.weight.exp_avg"; an empty one leaves them as they are.
// Lifetime: `comm` outlives what is returned.
StateTensors sharded_tensors(const ShardPlan& plan, const std::vector<NamedTensor>& shards,
                             Communicator& comm);

// Whole parameters on every rank, the optimizer's state in shards: steps 5 and 6.
TrainState sharded_state(const FlatModel& model, const ShardPlan& plan, Optimizer& optimizer,
                         BatchStream& batches, Communicator& comm);

}  // namespace ladder
