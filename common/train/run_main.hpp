// main() of every trainer: command line, world, training, report, exit code.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "common/comm/world.hpp"
#include "common/train/command_line.hpp"
#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder {

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitStopped = 75;  // saved and stopped on a signal

// One step of the course, as its main() describes it.
struct Trainer {
  std::string step;  // "step0_single_gpu"
  // Collective: every rank calls it.
  TrainReport (*train)(const TrainOptions& options, World& world);
  // Theory, padding included. Throws UsageError for a world in which the step does not run.
  StateBytes (*state_bytes)(const TrainOptions& options, int world_size, int rank);
  // Theory of what one optimizer step of all its microbatches sends, scalars included.
  Traffic (*step_traffic)(const TrainOptions& options, int world_size, int rank);
  // Of that, what each microbatch sends (the last step of an epoch may have fewer); null: nothing.
  Traffic (*microbatch_traffic)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // Theory of the largest amounts during training; null: those held between steps.
  PeakBytes (*peak_bytes)(const TrainOptions& options, int world_size, int rank) = nullptr;
  std::set<OptionGroup> groups = {};  // options that this step adds
};

// Theory of what a whole run sends: so many optimizer steps, of so many microbatches together.
Traffic run_traffic(const Trainer& trainer, const TrainOptions& options, std::int64_t num_steps,
                    std::int64_t num_microbatches, int world_size, int rank);

// Everything between argc and the exit code. An error on one rank is shown with its rank, and ends
// all of them. Writes OUT/report.json (rank 0) after training.
int run_main(int argc, char** argv, const Trainer& trainer);

// Runs `body` and returns its exit code. An error on one rank is shown with its rank, and ends all of
// them with the code that goes with it, as nobody must wait for a rank that has failed.
int run_in_world(World& world, const std::function<int()>& body);

// What --dry-run shows: parameters, bytes per rank by category, tokens per step.
std::string describe_run(const TrainOptions& options, const Trainer& trainer, int world_size);

}  // namespace ladder
