// One step of the course as a value: what its main(), the parity ladder and the benchmarks run.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/comm/traffic.hpp"
#include "common/comm/world.hpp"
#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder {

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

}  // namespace ladder
