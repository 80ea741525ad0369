// Checkpoints: one canonical, unsharded state, whichever step wrote it, so that any step can resume
// from any other's.
//
//   step_000100/model.safetensors       parameters by their GPT-2 names
//   step_000100/optimizer.safetensors   NAME.exp_avg and NAME.exp_avg_sq for each parameter (AdamW)
//   step_000100/state.json              step, position in the data, configuration, hashes
//
// A step whose ranks hold more than that, such as step 9's workers, adds files that only it reads.
//
// A checkpoint is written under another folder name, flushed and renamed: if the process is killed,
// the new checkpoint is there completely or not at all, and the old ones stay. Format:
// docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/core/json.hpp"
#include "common/model/model_options.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/train/checkpoint/train_state.hpp"

namespace ladder {

// What no tensor's shape tells of a model, by the options' names without dashes: with another value,
// the same parameters mean something else.
Json unshaped_options(const ModelOptions& model);

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string param_hash;
};

struct SaveOptions {
  std::optional<LossScaleState> loss_scale = {};  // of a run that has, or once had, fp16
  // bf16 or fp16: the parameters are also written as such, to a folder of that name. fp32: they are
  // not.
  at::ScalarType copy_dtype = at::kFloat;
};

// Writes RUN/checkpoints/step_NNNNNN; if that fails, nothing is left of it. One that exists is replaced
// if its history is not newer than the state's: the run has come by this step again. Throws
// CheckError if either has no history. `config` is stored for the reader's information. Visits each
// tensor once: parameters, then the optimizer's, then those of the extra files.
SavedCheckpoint save_checkpoint(const std::filesystem::path& run, std::int64_t step,
                                const TrainState& state, const Json& config,
                                const SaveOptions& options = {});

// What the state.json of a checkpoint says.
struct LoadedCheckpoint {
  std::int64_t step = 0;
  Json config;  // of the run that wrote it
  std::int64_t optimizer_steps = 0;
  DataPosition data;
  std::string tokenizer;
  Json data_contents;  // of its data, as in TrainState
  std::string param_hash, optimizer_hash;
  std::string reference_hash;                       // of the TrainState's reference
  std::map<std::string, std::string> extra_hashes;  // by the names of its extra files
  std::map<std::string, std::int64_t> extra_counts;
  bool has_read_extras = false;       // load_checkpoint() has: they were just those of the state
  std::vector<std::int64_t> history;  // as in TrainState
  std::optional<LossScaleState> loss_scale;  // of a run that has, or once had, fp16
};

// Copies a checkpoint into the state's tensors; state.restore() takes the rest. Checks first: if the
// checkpoint is damaged or belongs to another model (what no shape tells included), optimizer, tokenizer or
// reference model, throws CheckError naming the file and both values before any tensor changes.
// Only a wrong hash is found after the tensors have been read. Extra files are read if the
// checkpoint has just those that the state has; otherwise they stay unread, and the state's own
// stay as they are.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& checkpoint, const TrainState& state);

// Loads only the parameters, to start a new run from them. Checks names, shapes, tokenizer
// and what no shape tells in the same way. Returns their hash.
std::string load_parameters(const std::filesystem::path& checkpoint, const TrainState& state);

// Reads no tensor. Throws CheckError if that is damaged.
LoadedCheckpoint describe_checkpoint(const std::filesystem::path& checkpoint);

// RUN/checkpoints/step_NNNNNN.
std::filesystem::path checkpoint_path(const std::filesystem::path& run, std::int64_t step);

// The checkpoints in RUN/checkpoints, the newest last: by history, then by step. One whose state.json
// is damaged is ordered by its step, as if it had the newest history.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// The newest of them, if there is one.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run);

// The checkpoint that the value of `option` names: itself a checkpoint, or a run, which means that
// run's newest one. Throws CheckError naming the option if it is neither.
std::filesystem::path checkpoint_in(const std::string& option, const std::filesystem::path& folder);

// Deletes all but the newest `keep` good checkpoints; 0 deletes none. The newest `num_unproven` ones are
// not known to be good: of these, the newest stays as well.
void prune_checkpoints(const std::filesystem::path& run, std::int64_t keep,
                       std::int64_t num_unproven = 0);

// Renames the checkpoint of this step, from which no run could go on, to RUN/checkpoints/
// diverged_NNNNNN, and deletes what had such a name before. Returns its new path.
std::filesystem::path set_aside_checkpoint(const std::filesystem::path& run, std::int64_t step);

// Before the first step, so that a run does not end with what it cannot save: makes the folder of
// the checkpoints and another in it, and removes both again. Throws CheckError with the name and the
// reason.
void check_can_save(const std::filesystem::path& run);

// Deletes half-written checkpoints that killed runs left behind.
void sweep_partial_checkpoints(const std::filesystem::path& run);

}  // namespace ladder
