// What a run needs to continue, besides its step number: the contents of a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/core/json.hpp"
#include "common/data/batch_stream.hpp"
#include "common/model/model_options.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/checkpoint/state_tensors.hpp"

namespace ladder {

// What only the step that wrote it can use: another file beside the canonical ones.
struct ExtraFile {
  std::string name;  // in the checkpoint's folder, such as "workers/0/model.safetensors"
  StateTensors tensors;
  bool is_read_here = true;  // false: another rank's; this one only takes part in saving it
  // If its tensors have other sizes in a checkpoint with these extra counts: the tensors to read
  // it into. May throw what makes the checkpoint unfit.
  std::function<StateTensors(const std::map<std::string, std::int64_t>& counts)> as_saved = {};
};

// A model whose gradients are summed over microbatches and ranks.
struct SummedModel {
  FlatLayout whole;                 // even if this rank has only a part of it
  std::vector<NamedTensor> leaves;  // that this rank has, by the names of `whole`
};

// The frozen parameters that a run is held to.
struct FrozenReference {
  std::string hash = {};    // empty: there are none
  std::string advice = {};  // a sentence for a run that goes on with others than its checkpoint has
};

struct LoadedCheckpoint;  // checkpoint.hpp

// Tensors are accessed in place; no copy is made.
struct TrainState {
  StateTensors parameters;
  StateTensors optimizer;  // no tensors if the optimizer keeps none
  std::int64_t optimizer_steps = 0;
  DataPosition data;
  std::string tokenizer;
  // Passes on what is no tensor: to the optimizer its steps, to the batch stream its position, ….
  std::function<void(const LoadedCheckpoint& loaded)> restore = {};
  BatchStream* batches = nullptr;  // of this rank, for the report and a step back; not stored
  std::vector<ExtraFile> extra_files = {};
  std::map<std::string, std::int64_t> extra_counts = {};
  // For a run whose state may be replaced by an older one, which nevertheless is the one that goes on:
  // of two histories the lexicographically larger one is the newer, whatever the steps. Empty: the
  // higher step is the newer.
  std::vector<std::int64_t> history = {};
  std::optional<ModelOptions> model = {};  // nothing: what no shape tells of it is not known
  FrozenReference reference = {};
  // What the training and the validation data are: {"samples", "tokens", "hash"} by name.
  KnownJson data_contents = {};
  // What --gradient-sum exact rounds; not stored. Nothing: there are no sums whose order matters.
  std::optional<SummedModel> summed = {};
};

// The state of a rank that holds everything. Local. Lifetime: the arguments outlive the state.
TrainState full_state(const FlatModel& model, Optimizer& optimizer, BatchStream& batches);

// The state with these tensors instead of a whole replica's.
// Tensors that `summed` has in parts are stored whole.
TrainState state_of(const StateTensors& parameters, const StateTensors& optimizer_tensors,
                    Optimizer& optimizer, BatchStream& batches, std::optional<SummedModel> summed);

// What a checkpoint stores of a whole replica's parameters, in fp32: their masters, or themselves.
StateTensors stored_parameters(const FlatModel& model, Optimizer& optimizer);

// Stores these masters of the optimizer's. What is read into them is also rounded into the
// parameters.
StateTensors rounded_to(const StateTensors& parameters, const StateTensors& masters,
                        Optimizer& optimizer);

}  // namespace ladder
