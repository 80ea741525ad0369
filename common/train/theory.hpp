// What theory says of a step's trainer: the value from which --dry-run, the planner, the checks of a
// run and the site take all that they know of it. Nothing here needs a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/mesh_shape.hpp"
#include "common/comm/traffic.hpp"
#include "common/core/json.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/state_bytes.hpp"

namespace ladder {

struct Send;        // sends.hpp
struct StepsTaken;  // sends.hpp

// What theory says of a rank.
template <class Result>
using RankTheory = std::function<Result(const TrainOptions& options, int world_size, int rank)>;

// The defaults of a trainer: a theory with nothing to say, and a model that is not cut.
template <class Result>
inline constexpr auto kNothing = [](const TrainOptions& /*options*/, auto...) { return Result(); };
inline MeshShape all_replicas(const TrainOptions& /*options*/, int world_size) {
  return {.num_replicas = world_size};
}
Json no_schedule(const TrainOptions& options, int world_size);

// What the optimizer of a rank and its two norms are about, in elements per optimizer step.
struct OptimizerWork {
  double updated = 0;
  double normed = 0;  // of gradients and parameters together
};
// All elements of a model.
OptimizerWork work_of_replica(const TrainOptions& options, int world_size, int rank);

// How ./ladder plan tries a step: what it calls the try ("2 stages"), and the words besides those of
// its user. By default it tries the step as it is, on several ranks: one alone is best off with
// step 0.
struct Try {
  std::string name, words;
};
using Tries = std::vector<Try>;
inline Tries as_it_is(const TrainOptions& /*options*/, int world_size) {
  return Tries(world_size > 1 ? 1 : 0);
}
inline Tries never(const TrainOptions& /*options*/, int /*world_size*/) {
  return {};
}

// What each rank of a trainer is.
enum class RankRole {
  kAlone,    // the only one, which may simulate others
  kReplica,  // a complete copy of the model, equal to the others after every optimizer step
  kStage,    // a stage of a replica
  kWorker,   // a copy of the model that trains on its own, and averages from time to time
};
const char* to_string(RankRole role);  // "alone", "replica", "stage", "worker"

struct Theory {
  std::string step;  // name of the trainer: "step0_single_gpu"
  RankRole role = RankRole::kReplica;
  // Over the ranks. With several microbatches this is another order than step 0's, so the two are
  // equal up to rounding, unless sums are exact.
  bool sums_each_microbatch = false;
  // Ranks may start with different parameters; rank 0's count. If a rank creates only its slices,
  // no rank could send it the rest, so the seed is the same by contract.
  bool starts_by_broadcast = true;
  int num_models = 1;  // at most, that run forward on a rank: a frozen one, too
  // The names of memory scopes in which a rank may keep what is no state, of any size.
  std::vector<std::string> keeps = {};
  // What is held between steps, padding included. Throws UsageError for a world in which
  // the step cannot run.
  RankTheory<StateBytes> state_bytes;
  // All that these optimizer steps send. Throws UsageError as state_bytes does.
  std::vector<Send> (*sends)(const TrainOptions& options, const StepsTaken& steps, int world_size,
                             int rank);
  // The most that comes and goes within a step, on top of that. The categories need not peak
  // at the same moment. Communication is left out: how much scratch exists at once depends on timing.
  RankTheory<StateBytes> transient_bytes = kNothing<StateBytes>;
  // A bound of what a rank holds on top of those amounts at any moment of training or of a
  // save: activations, what backward computes with, token ids, buffers. Nothing: it is not known.
  RankTheory<std::optional<std::int64_t>> working_bytes = kNothing<std::optional<std::int64_t>>;
  // What the optimizer step that sends most sends. Nothing: all full steps send the same.
  RankTheory<std::optional<Traffic>> largest_traffic = kNothing<std::optional<Traffic>>;
  // Whether an operation may be in flight between steps: how much scratch it holds depends on timing.
  bool (*holds_scratch)(const TrainOptions& options) = kNothing<bool>;
  RankTheory<OptimizerWork> optimizer_work = work_of_replica;
  // Which places so many ranks have.
  MeshShape (*mesh)(const TrainOptions& options, int world_size) = all_replicas;
  // Which ranks work together, a line for --dry-run; empty: nothing is said.
  std::string (*groups)(const TrainOptions& options, int world_size) = kNothing<std::string>;
  // What each stage computes in which order, as data for --dry-run --json; null: not planned.
  Json (*schedule)(const TrainOptions& options, int world_size) = no_schedule;
  // A stage's idle time per time that it computes, if all compute alike.
  double (*bubble)(const TrainOptions& options, int world_size) = kNothing<double>;
  Tries (*tries)(const TrainOptions& options, int world_size) = as_it_is;
  // What an option shows instead of training.
  struct Picture {
    const char* option;  // "--show-schedule"
    const char* help;
    // For the terminal, or as a trace.
    std::string (*show)(const TrainOptions& options, int world_size, bool is_trace);
  };
  std::optional<Picture> picture = {};
  // Those of this step, with their defaults.
  TrainOptions options = {};

  // The most that a rank holds during training.
  StateBytes peak_bytes(const TrainOptions& of_run, int world_size, int rank) const;
};

}  // namespace ladder
