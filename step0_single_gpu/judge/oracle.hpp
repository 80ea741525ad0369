// Asks step 0 what a run must end like.
#pragma once

#include <string>

#include "common/train/options/options.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step0_single_gpu/oracle_options.hpp"

namespace ladder {

// A run of step 0 with these options, in which this process plays so many replicas. It is saved in
// `out`. Local.
FinishedRun ask_oracle(TrainOptions options, Fold fold, int num_replicas, const std::string& out);

}  // namespace ladder
