#include "step3_naive_dp/why_does_it_hang/trainer_options.hpp"

#include "common/train/options/option_table.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {

void HangOptions::declare(OptionTable& table) {
  table.heading("Broken trainers");
  table.number("--trainer", trainer, {1, int{hang::kTrainers.size()}},
               "which of the six trainers trains");
}

void HangOptions::finalize(TrainOptions& /*options*/) {}

}  // namespace ladder
