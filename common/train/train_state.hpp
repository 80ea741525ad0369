// What a run goes on from, besides the number of its step: what a checkpoint holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/data/batch_stream.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/state_tensors.hpp"

namespace ladder {

// Tensors are reached where they lie: no copy is made.
struct TrainState {
  StateTensors parameters;
  StateTensors optimizer;  // of no tensor where the optimizer keeps none
  std::int64_t optimizer_steps = 0;
  DataPosition data;
  std::string tokenizer;
  std::int64_t data_bytes_read = 0;   // by this rank so far; for the report, not stored
  std::int64_t num_microbatches = 0;  // likewise
  // Hands optimizer_steps and data, once they are loaded, to whom they belong.
  std::function<void(const TrainState& loaded)> restore = {};
};

// The state of a rank that holds everything. Local. Lifetime: they outlive the state.
TrainState full_state(const FlatModel& model, Optimizer& optimizer, BatchStream& batches);

// With these tensors instead of a whole replica's.
TrainState state_of(StateTensors parameters, StateTensors optimizer_tensors, Optimizer& optimizer,
                    BatchStream& batches);

}  // namespace ladder
