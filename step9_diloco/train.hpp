// Step 9: DiLoCo. Workers take many steps of their own between two averages.
#pragma once

#include "common/train/trainer.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"

namespace ladder::step9 {

// Collective: every rank of the world calls it with the same options; every rank is a worker. If one
// rank throws, the others wait until the caller ends them, as run_main does.
TrainReport train(const TrainOptions& options, World& world);

// A replica, the global parameters and the outer momentum: 24 bytes per element with AdamW inside.
// While an average is in flight over a delay, also the pseudogradient of its fragment.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// The same, with the pseudogradient of the largest fragment.
PeakBytes peak_bytes(const TrainOptions& options, int world_size, int rank);

// The step of a cycle that sends the most: it starts the average of the largest fragment, and with no
// delay it also ends the round.
Traffic largest_traffic(const TrainOptions& options, int world_size, int rank);

// One average of a fragment per round, counted in the inner step that starts it (in fp32 an
// all-reduce), and an all-reduce of four doubles per inner step since the last one, plus one, at the
// round's end and before a save; on one rank, in each step.
Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step9_diloco",
      .train = train,
      .state_bytes = state_bytes,
      .traffic = traffic,
      .peak_bytes = peak_bytes,
      .largest_traffic = largest_traffic,
      .options = {.own = step_options<DilocoOptions, ElasticOptions>()},
  };
}

}  // namespace ladder::step9
