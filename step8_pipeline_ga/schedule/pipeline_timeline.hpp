// When each action of a pipeline was executed, or would be: what schedule_simulation.hpp computes,
// the runner measures, and schedule_drawing.hpp draws.
#pragma once

#include <vector>

#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder {

struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;  // since a moment that is the same for all stages
};

using Timeline = std::vector<std::vector<TimedAction>>;  // for each stage, in order of time

}  // namespace ladder
