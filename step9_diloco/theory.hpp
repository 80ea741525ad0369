// What theory says of step 9.
#pragma once

#include "common/train/theory.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder::step9 {

// A replica, the global parameters and the outer momentum: 24 bytes per element with AdamW inside.
// While an average is in flight over a delay, also the pseudogradient of its fragment.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Without a delay, the pseudogradient of the largest fragment comes and goes within a step.
StateBytes transient_bytes(const TrainOptions& options, int world_size, int rank);

// The activations of a microbatch, and what an average has on its way.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

// The step of a cycle that sends the most: it starts the average of the largest fragment, and with
// no delay it also ends the round.
Traffic largest_traffic(const TrainOptions& options, int world_size, int rank);

// One average of a fragment per round, counted in the inner step that starts it (in fp32 an
// all-reduce), and an all-reduce of four doubles per inner step since the last one, plus one, at
// the round's end and before a save; on one rank, in each step.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// In each inner step all elements; the outer steps come on top.
OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank);

// With a delay, an average is in flight.
inline bool holds_scratch(const TrainOptions& options) {
  return options.get<DilocoOptions>().sync_delay > 0;
}

// Rounds of two lengths.
Tries tries(const TrainOptions& options, int world_size);

inline Theory theory() {
  return {
      .step = "step9_diloco",
      .role = RankRole::kWorker,
      .num_models = 2,
      .keeps = {"a checkpoint's average in flight"},
      .state_bytes = state_bytes,
      .sends = sends,
      .transient_bytes = transient_bytes,
      .working_bytes = working_bytes,
      .largest_traffic = largest_traffic,
      .holds_scratch = holds_scratch,
      .optimizer_work = optimizer_work,
      .tries = tries,
      .options = {.own = step_options<DilocoOptions>()},
  };
}

}  // namespace ladder::step9
