// One step of the course as a value, which its main(), the parity ladder and the benchmarks run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/traffic.hpp"
#include "common/comm/world.hpp"
#include "common/core/json.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// Optimizer steps that were taken, or are imagined, one after the other, and what they trained on.
struct StepsTaken {
  std::int64_t first = 0, last = 1;  // numbers first + 1 to last
  BatchCounts batches = {};  // of one rank, in all of them together: an epoch ends in a part
  std::int64_t count() const { return last - first; }
};

struct Trainer {
  std::string step;  // "step0_single_gpu"
  // Collective: every rank calls it.
  TrainReport (*train)(const TrainOptions& options, World& world);
  // Theory, padding included. Throws UsageError for a world in which the step cannot run.
  StateBytes (*state_bytes)(const TrainOptions& options, int world_size, int rank);
  // Theory: what these optimizer steps send, scalars included.
  Traffic (*traffic)(const TrainOptions& options, const StepsTaken& steps, int world_size,
                     int rank);
  // Theory: the largest amounts during training; null: the same as between steps.
  PeakBytes (*peak_bytes)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // Theory: a bound of what a rank holds on top of those amounts at any moment of training or of a
  // save: activations, what backward computes with, token ids, buffers. Null: it is not known.
  std::int64_t (*working_bytes)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // Theory: what the optimizer step that sends most sends; null: all full steps send the same.
  Traffic (*largest_traffic)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // The stages into which the model is cut on so many ranks; null: there is no pipeline.
  int (*num_stages)(const TrainOptions& options, int world_size) = nullptr;
  // What each stage computes in which order, as data for --dry-run --json; null: there is no pipeline.
  Json (*schedule)(const TrainOptions& options, int world_size) = nullptr;
  // Theory: a stage's idle time per time that it computes, if all compute alike; null: no pipeline.
  double (*bubble)(const TrainOptions& options, int world_size) = nullptr;
  // A picture that an option asks for instead of training; no name: there is none.
  struct Picture {
    const char* option = nullptr;  // "--show-schedule"
    const char* help = nullptr;
    // As text, or as an SVG file.
    std::string (*draw)(const TrainOptions& options, int world_size, bool is_svg) = nullptr;
  } picture = {};
  // Those of this step, with their defaults.
  TrainOptions options = {};
};

// These options, finalized, as this step sees them: with its own ones and no other step's.
TrainOptions options_for(const Trainer& trainer, TrainOptions options);

// The traffic of a step that always sends this much per optimizer step, whatever it trains on.
template <Traffic (*step_traffic)(const TrainOptions&, int world_size, int rank)>
Traffic every_step(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank) {
  Traffic traffic = step_traffic(options, world_size, rank);
  return traffic *= steps.count();
}

// One optimizer step with all its microbatches and rows.
StepsTaken full_step(const TrainOptions& options);

// The steps of a run.
StepsTaken steps_of(const TrainReport& report);

// How many stages a replica has; 1 if the step has no pipeline.
int num_stages_of(const Trainer& trainer, const TrainOptions& options, int world_size);

// Theory: the most bytes that a rank holds during training.
PeakBytes peak_bytes_of(const Trainer& trainer, const TrainOptions& options, int world_size,
                        int rank);

// Theory: at most so many bytes on top. Nothing if the trainer has no formula, or does not know how
// many microbatches a step has.
std::optional<std::int64_t> working_bytes_of(const Trainer& trainer, const TrainOptions& options,
                                             int world_size, int rank);

}  // namespace ladder
