// What a run needs to continue, besides its step number: the contents of a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/data/batch_stream.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/state_tensors.hpp"

namespace ladder {

// Tensors are accessed in place; no copy is made.
struct TrainState {
  StateTensors parameters;
  StateTensors optimizer;  // no tensors if the optimizer keeps none
  std::int64_t optimizer_steps = 0;
  DataPosition data;
  std::string tokenizer;
  std::int64_t data_bytes_read = 0;  // by this rank so far; for the report, not stored
  BatchCounts batch_counts = {};     // likewise
  // Passes optimizer_steps and data, once loaded, to the optimizer and the batch stream.
  std::function<void(const TrainState& loaded)> restore = {};
};

// The state of a rank that holds everything. Local. Lifetime: the arguments outlive the state.
TrainState full_state(const FlatModel& model, Optimizer& optimizer, BatchStream& batches);

// The same with these tensors instead of a whole replica's.
TrainState state_of(StateTensors parameters, StateTensors optimizer_tensors, Optimizer& optimizer,
                    BatchStream& batches);

}  // namespace ladder
