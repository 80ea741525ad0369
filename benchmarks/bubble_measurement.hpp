// How long the pipeline's real runner takes, over real messages, when computing is paced: a chunk's
// forward and backward sleep for a given time.
//
// So every stage is exactly as fast as every other, and needs no core of its own: four stages run
// on two cores as on four. What is left to measure is the schedule, and what the runner and the
// messages add to it. schedule_simulation.hpp predicts the rest.
//
// Collective: every function that takes a communicator, one rank per stage, all on one machine
//             (they share its steady clock).
#pragma once

#include <cstdint>

#include "common/comm/communicator.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {

struct PacedPipeline {
  Schedule schedule = Schedule::k1f1b;
  int chunks_per_stage = 1;
  std::int64_t num_microbatches = 8;
  std::int64_t message_numel = 1;  // floats in an activation, and in its gradient
  // What a whole stage takes. With several chunks, each takes its share; a zero-bubble schedule
  // halves a backward.
  double forward_s = 0.010;
  double backward_s = 0.020;

  PipelineCosts costs() const;               // of one chunk
  double predicted_s(int num_stages) const;  // formula_s(), or the simulation where it has none
  TimelineSummary predicted(int num_stages) const;  // by simulation
};

// When each stage computed what, as a trace of one run of the pipeline says, after another run that
// warms up: on every rank, for all stages. The batch is cut into flushes of flush_size
// microbatches; 0: a single flush.
Timeline measure(const PacedPipeline& pipeline, Communicator& stages, std::int64_t flush_size = 0);

// Of so many measurements the one with the median total.
Timeline measure_rounds(const PacedPipeline& pipeline, Communicator& stages, int num_rounds);

}  // namespace ladder
