// A worker has the model twice: its own copy, which it trains, and the global one, which is equal on
// all workers.
#pragma once

#include "common/train/build_model.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {

struct ModelCopy {
  // With its initial values. `layout` is for a model of the options' precision.
  ModelCopy(const TrainOptions& options, const FlatLayout& layout)
      : flat(layout), model(build_model(options, flat)), loss_sum(loss_of(model, kNextToken)) {}
  ModelCopy(const ModelCopy&) = delete;  // loss_sum refers to the model
  ModelCopy& operator=(const ModelCopy&) = delete;

  FlatModel flat;
  Model model;
  LossSum loss_sum;
};

}  // namespace ladder
