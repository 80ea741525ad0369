// One step of the course as a value, which its main(), the parity ladder and the benchmarks run.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/comm/traffic.hpp"
#include "common/comm/world.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

struct Trainer {
  std::string step;  // "step0_single_gpu"
  // Collective: every rank calls it.
  TrainReport (*train)(const TrainOptions& options, World& world);
  // Theory, padding included. Throws UsageError for a world in which the step cannot run.
  StateBytes (*state_bytes)(const TrainOptions& options, int world_size, int rank);
  // Theory: what one optimizer step with all its microbatches sends, scalars included.
  Traffic (*step_traffic)(const TrainOptions& options, int world_size, int rank);
  // The part of it that each microbatch sends (an epoch's last step may have fewer); null: nothing.
  Traffic (*microbatch_traffic)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // On top of that, what each row of a microbatch sends (an epoch's last one may have fewer).
  Traffic (*row_traffic)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // Theory: the largest amounts during training; null: the same as between steps.
  PeakBytes (*peak_bytes)(const TrainOptions& options, int world_size, int rank) = nullptr;
  // Replaces the three above in a step whose optimizer steps do not all send the same: theory of what
  // those numbered first_step + 1 to last_step send together.
  Traffic (*traffic_between)(const TrainOptions& options, std::int64_t first_step,
                             std::int64_t last_step, int world_size, int rank) = nullptr;
  // --show-schedule: a pipeline's schedule as text or as an SVG file; null: there is no pipeline.
  std::string (*draw_schedule)(const TrainOptions& options, int num_stages, bool is_svg) = nullptr;
  std::set<OptionGroup> groups = {};  // options that this step adds
};

// Theory: what the run of this report sends: so many optimizer steps, with so many microbatches and
//         rows in all of them together.
Traffic run_traffic(const Trainer& trainer, const TrainOptions& options, const TrainReport& report,
                    int world_size, int rank);

}  // namespace ladder
