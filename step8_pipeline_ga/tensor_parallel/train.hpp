// The chapter of step 8 about tensor parallelism: stages, replicas, and ranks that share a layer.
#pragma once

#include "common/train/trainer.hpp"
#include "step8_pipeline_ga/tensor_parallel/theory.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder::tensor_parallel {

// Trains to predict the next token. Collective. Throws UsageError naming --tensor-ranks or
// --pipeline-stages if they do not divide the ranks.
TrainReport train(const TrainOptions& options, Communicator& comm);

inline Trainer trainer() {
  return {theory(), train};
}

}  // namespace ladder::tensor_parallel
