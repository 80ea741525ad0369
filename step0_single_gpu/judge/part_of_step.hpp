// Recognizes gradients of a part of a step's data.
#pragma once

#include <string>

#include "common/train/options/options.hpp"

namespace ladder {

// Whose gradients have this norm in the first step of a run, if they are those of one rank alone,
// of all ranks but one, or the same of microbatches; else empty. Computes each part in this process,
// as step 0 would.
std::string part_of_first_step(double norm, const TrainOptions& options, int num_ranks);

}  // namespace ladder
