// What theory says of the chapter of step 3 about ranks that wait for each other.
#pragma once

#include "common/train/options/option_table.hpp"
#include "common/train/theory.hpp"
#include "step3_naive_dp/theory.hpp"

namespace ladder {

inline constexpr int kNumBrokenTrainers = 7;

struct HangOptions {
  int trainer = 1;  // --trainer

  void declare(OptionTable& table) {
    table.heading("Broken trainers");
    table.number("--trainer", trainer, {1, kNumBrokenTrainers},
                 "which of the seven trainers trains");
  }
};

}  // namespace ladder

namespace ladder::hang {

// Once it is mended: what step 3 sends, and what the trainer adds.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

inline Theory theory() {
  return {
      .step = "why_does_it_hang",
      .state_bytes = step3::state_bytes,  // trainer 5 also holds a copy of the parameters
      .sends = sends,
      .tries = never,
      .options = {.own = step_options<HangOptions>()},
  };
}

}  // namespace ladder::hang
