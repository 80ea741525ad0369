// What a step leaves in the log, and whether training can continue after it.
#pragma once

#include <cstdint>
#include <string>

#include "common/train/options.hpp"

namespace ladder {

// What the loop knows about a step once it is done: global values, the same on every rank.
struct StepRecord {
  double loss = 0;                 // nats per target token
  double grad_norm = 0;            // before clipping
  double param_norm = 0;           // after the step
  double num_targets = 0;          // of all ranks
  bool is_stop_requested = false;  // any rank has received a signal
};

// The name of the first value that is infinite or not a number; nullptr if all are finite.
const char* non_finite_value(const StepRecord& record);

// The message to a user whose run has diverged in this step (the first is 1): the values, and the
// options that may help.
std::string explain_divergence(const StepRecord& record, std::int64_t step,
                               const TrainOptions& options);

}  // namespace ladder
