// Step 9: DiLoCo. Workers take many steps of their own between two averages.
#pragma once

#include "step9_diloco/cost_card.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder::step9 {

// Collective: every rank of the world calls it with the same options; every rank is a worker. If
// one rank throws, the others wait until the caller ends them, as run_main does.
TrainReport train(const TrainOptions& options, World& world);

inline Trainer trainer() {
  return {
      .step = "step9_diloco",
      .train = train,
      .state_bytes = state_bytes,
      .traffic = traffic,
      .peak_bytes = peak_bytes,
      .working_bytes = working_bytes,
      .largest_traffic = largest_traffic,
      .options = {.own = step_options<DilocoOptions, MovedOptions>()},
  };
}

}  // namespace ladder::step9
