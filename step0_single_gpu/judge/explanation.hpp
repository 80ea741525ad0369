// Says in a learner's words how a training went wrong.
#pragma once

#include <string>
#include <vector>

#include "common/train/options/options.hpp"
#include "step0_single_gpu/judge/comparison.hpp"

namespace ladder {

// A few lines on how `found` differs from `wanted`, the oracle's answer; nothing if it does not:
// the first step that differs in each series; if it shows, what the gradients look like (zero, a
// mean, so many times too large, those of one rank alone, without a microbatch, of an overflow that
// is hidden), or that they are right and the update is not; where to look if all is equal up to
// rounding; how many tensors differ, the first of them, and those that have not moved. `options`: of
// the run.
std::vector<std::string> explain(const FinishedRun& found, const FinishedRun& wanted,
                                 const TrainOptions& options, int num_ranks, int num_replicas);

}  // namespace ladder
