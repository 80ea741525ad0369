// Plans of a pipeline whose batches have different sizes.
#pragma once

#include <cstdint>
#include <functional>

#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder {

// Plans one run for this many microbatches: called once for each number that occurs.
using Planner = std::function<PipelinePlan(std::int64_t num_microbatches)>;

// The schedule that the options name, for any number of microbatches.
Planner planner_of(const TrainOptions& options, int num_stages);

}  // namespace ladder
