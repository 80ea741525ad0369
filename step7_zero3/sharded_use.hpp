// Saving and evaluating a model that no rank holds completely.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step5_zero1/shard_group.hpp"
#include "step7_zero3/sharded_model.hpp"

namespace ladder {

// The state that a checkpoint stores, made of the shards of all ranks. Saving it is collective, as
// with step 5's sharded_tensors().
TrainState sharded_state(const ShardedModel& model, Optimizer& optimizer, BatchStream& batches,
                         ShardGroup& group);

// Like evaluate() of step 2: rank r runs microbatches r, r + N, …, and the loss equals that of one
// process to the bit. But every rank must run equally many forwards, because each forward gathers
// parameters: a rank with no microbatch left runs the first one again and drops the result.
// Between two forwards all ranks agree whether to stop. Collective.
double collective_evaluate(const LossSum& loss_sum, const Microbatches& batches,
                           Communicator& comm);

}  // namespace ladder
