// The chapter of step 3 about ranks that wait for each other: six broken trainers.
#pragma once

#include "common/train/trainer.hpp"
#include "step3_naive_dp/why_does_it_hang/trainer_options.hpp"

namespace ladder::hang {

// With the trainer that --trainer names. Collective.
TrainReport train(const TrainOptions& options, World& world);

// A replica. Trainer 5 also holds a copy of the parameters, which is no model state.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Once it is mended: what step 3 sends, and what the trainer adds.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

inline Trainer trainer() {
  return {
      .step = "why_does_it_hang",
      .train = train,
      .state_bytes = state_bytes,
      .traffic = every_step<step_traffic>,
      .options = {.own = step_options<HangOptions>()},
  };
}

}  // namespace ladder::hang
