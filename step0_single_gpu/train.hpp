// Step 0: one device, one process, and the loop that all later steps keep.
#pragma once

#include "step0_single_gpu/cost_card.hpp"
#include "step0_single_gpu/oracle_options.hpp"

namespace ladder::step0 {

// Trains as `options` say. Throws UsageError in a world of several ranks.
TrainReport train(const TrainOptions& options, World& world);

inline Trainer trainer() {
  return {
      .step = "step0_single_gpu",
      .train = train,
      .state_bytes = state_bytes,
      .traffic = every_step<step_traffic>,
      .working_bytes = working_bytes,
      .options = {.own = step_options<OracleOptions, MovedGraphs>()},
  };
}

}  // namespace ladder::step0
