// Which of the six trainers trains.
#pragma once

#include "common/train/options/option_table.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {

struct HangOptions {
  int trainer = 1;  // --trainer

  void declare(OptionTable& table) {
    table.heading("Broken trainers");
    table.number("--trainer", trainer, {1, int{hang::kTrainers.size()}},
                 "which of the six trainers trains");
  }
};

}  // namespace ladder
