// Checkpoints of DiLoCo: the global model as any other step would save it, and what only step 9 can
// continue from.
//
//   model.safetensors                   the global parameters
//   optimizer.safetensors               worker 0's inner optimizer
//   outer.safetensors                   the outer momentum, and the average that was in flight
//   workers/R/model.safetensors         worker R's own parameters
//   workers/R/optimizer.safetensors     and its inner optimizer; in fp16 also its loss scale
//
// Every worker reads its own files back. Saving is collective: workers send what is theirs to
// worker 0, tensor by tensor, which writes it and frees it before the next one arrives. With as
// many workers a run continues to the bit, also from the middle of a round. Any other reader starts
// from the global parameters.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step9_diloco/diloco.hpp"

namespace ladder {

// A worker has the model twice: its own copy, which it trains, and the global one, which is equal on
// all workers.
struct ModelCopy {
  // The model has its initial values. `layout` is for a model of the options' precision.
  ModelCopy(const TrainOptions& options, const FlatLayout& layout)
      : flat(layout), model(build_model(options, flat)), loss_sum(loss_of(model, kNextToken)) {}
  ModelCopy(const ModelCopy&) = delete;  // loss_sum refers to the model
  ModelCopy& operator=(const ModelCopy&) = delete;

  FlatModel flat;
  Model model;
  LossSum loss_sum;
};

// Local, but what it returns is collective to save. The average in flight must be settled.
// Lifetime: the arguments outlive the state.
TrainState diloco_state(Diloco& diloco, const ModelCopy& own, const ModelCopy& global,
                        Optimizer& inner, BatchStream& batches, Run& run, Communicator& comm);

}  // namespace ladder
