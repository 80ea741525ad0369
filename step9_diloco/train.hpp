// Step 9: DiLoCo. Workers take many steps of their own between two averages.
#pragma once

#include "common/train/trainer.hpp"

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
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

// One average of a fragment per round, counted in the inner step that starts it (in fp32 an
// all-reduce), and an all-reduce of four doubles per inner step since the last one, plus one, at the
// round's end and before a save; on one rank, in each step.
Traffic traffic_between(const TrainOptions& options, std::int64_t first_step,
                        std::int64_t last_step, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "step9_diloco",
      .train = train,
      .state_bytes = state_bytes,
      .step_traffic = step_traffic,
      .peak_bytes = peak_bytes,
      .traffic_between = traffic_between,
      .groups = {OptionGroup::kDiloco},
  };
}

}  // namespace ladder::step9
