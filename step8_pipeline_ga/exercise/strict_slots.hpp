// For the judge: the slots that a plan takes on the strictest transport, where every send waits for
// its receive. Messages take no time, but a message that is listed early or late holds up a stage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder::step8 {

// A forward takes one slot, a backward two. The plan is right (schedule_check.hpp), and its
// backwards are whole.
inline int strict_slots(const PipelinePlan& plan) {
  std::vector<std::size_t> num_done(plan.stages.size());
  std::vector<int> now(plan.stages.size());
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
      while (num_done[stage] < plan.stages[stage].size()) {
        const Action& action = plan.stages[stage][num_done[stage]];
        if (is_message(action.kind)) {
          const Action end = other_end(action);
          const auto partner = static_cast<std::size_t>(plan.stage_of(end.chunk));
          const std::vector<Action>& actions = plan.stages[partner];
          if (num_done[partner] == actions.size() || actions[num_done[partner]] != end) break;
          now[stage] = now[partner] = std::max(now[stage], now[partner]);
          ++num_done[partner];
        } else {
          now[stage] += action.kind == ActionKind::kForward ? 1 : 2;
        }
        ++num_done[stage];
        goes_on = true;
      }
    }
  }
  return *std::max_element(now.begin(), now.end());
}

}  // namespace ladder::step8
