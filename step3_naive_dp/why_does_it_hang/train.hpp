// The chapter of step 3 about ranks that wait for each other: seven broken trainers.
#pragma once

#include "common/train/options/option_table.hpp"
#include "step3_naive_dp/train.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {

struct HangOptions {
  int trainer = 1;  // --trainer

  void declare(OptionTable& table) {
    table.heading("Broken trainers");
    table.number("--trainer", trainer, {1, int{hang::kTrainers.size()}},
                 "which of the seven trainers trains");
  }
};

}  // namespace ladder

namespace ladder::hang {

// With the trainer that --trainer names. Collective.
TrainReport train(const TrainOptions& options, Communicator& comm);

// Once it is mended: what step 3 sends, and what the trainer adds.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

inline Trainer trainer() {
  return {
      .step = "why_does_it_hang",
      .train = train,
      .state_bytes = step3::state_bytes,  // trainer 5 also holds a copy of the parameters
      .sends = sends,
      .tries = never,
      .options = {.own = step_options<HangOptions>()},
  };
}

}  // namespace ladder::hang
