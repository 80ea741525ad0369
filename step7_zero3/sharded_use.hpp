// What a trainer does with a model beside training it, for one that is whole nowhere.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/train/checkpoint.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step7_zero3/sharded_model.hpp"

namespace ladder {

// What a checkpoint holds, from the shards of all ranks: collective to save, as step 5's
// sharded_tensors() is.
TrainState sharded_state(const ShardedModel& model, Optimizer& optimizer, BatchStream& batches,
                         Communicator& comm);

// As evaluate() of step 2: rank r runs microbatch r, r + N, …, and the loss is that of one process to
// the bit. But every rank must run equally many forwards, as each of them gathers parameters: one
// that has no microbatch left runs the first one again, and drops the result. Collective.
double collective_evaluate(const LossSum& loss_sum, const Microbatches& batches,
                           Communicator& comm);

}  // namespace ladder
