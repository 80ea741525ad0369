// Which of the six trainers trains.
#pragma once

#include "common/train/options/step_options.hpp"

namespace ladder {

struct HangOptions {
  int trainer = 1;  // --trainer

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
};

}  // namespace ladder
