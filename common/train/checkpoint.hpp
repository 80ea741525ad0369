// Checkpoints: one canonical, unsharded state whatever step wrote it, so that any step can go on
// from any other's.
//
//   step_000100/model.safetensors       parameters by their GPT-2 names
//   step_000100/optimizer.safetensors   NAME.exp_avg and NAME.exp_avg_sq for each parameter (AdamW)
//   step_000100/state.json              step, position in the data, configuration, hashes
//
// Written to a folder of another name, flushed and renamed: a kill at any moment leaves the old
// checkpoints or the old ones and the new one, never half of one. Format: docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/data/batch_stream.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/json.hpp"
#include "common/train/state_tensors.hpp"

namespace ladder {

// What a run goes on from, besides the number of its step. Tensors are reached where they lie: no
// copy is made.
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

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string param_hash;
};

// Writes RUN/checkpoints/step_NNNNNN; throws CheckError if there is one already. `config` is stored
// for the reader's information. Goes through the tensors once: parameters, then the optimizer's.
SavedCheckpoint save_checkpoint(const std::filesystem::path& run, std::int64_t step,
                                const TrainState& state, const Json& config);

struct LoadedCheckpoint {
  std::int64_t step = 0;
  Json config;  // of the run that wrote it
  std::string param_hash;
  std::string hashes;  // of its parameters and its optimizer's state
};

// Copies a checkpoint into the state's tensors and sets its other members. Everything is compared
// first: throws CheckError naming the file and both values, before a tensor has changed, for one
// that is damaged or fits another model, optimizer or tokenizer. A wrong hash is found after the
// tensors have been read.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& checkpoint, TrainState& state);

// The parameters alone: the start of a new run. Returns their hash.
std::string load_parameters(const std::filesystem::path& checkpoint,
                            const StateTensors& parameters);

// The checkpoint with the highest step in RUN/checkpoints, if there is one.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run);

// Deletes all but the newest `keep` checkpoints; 0: none are deleted.
void prune_checkpoints(const std::filesystem::path& run, std::int64_t keep);

// Deletes what killed runs left half-written.
void sweep_partial_checkpoints(const std::filesystem::path& run);

}  // namespace ladder
