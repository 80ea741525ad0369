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
#include <optional>
#include <string>

#include "common/train/json.hpp"
#include "common/train/train_state.hpp"

namespace ladder {

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
