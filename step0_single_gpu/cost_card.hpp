// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step0 {

// 4 bytes each for parameters and gradients, 8 for AdamW's two moments: 16 per element of the
// layout. Throws UsageError for several ranks.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Zero: a single rank sends nothing.
Traffic step_traffic(const TrainOptions& options, int world_size, int rank);

// The activations of a microbatch, and the token ids of a step.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

}  // namespace ladder::step0
