// Schedules that are right, whatever the answer to part 1 is: part 2 is judged with these plans.
// Read it after you have written your own.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder::step8 {

using Actions = std::vector<Action>;

class RightSchedule {
 public:
  // As plan_pipeline(); interleaved for multiples of the number of stages only.
  static PipelinePlan plan(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                           int chunks_per_stage) {
    PipelinePlan plan = {num_stages, chunks_per_stage, num_microbatches, {}};
    std::vector<Actions> computations;
    for (int stage = 0; stage < num_stages; ++stage) {
      const Actions order = take_turns(in_rounds(plan, stage, ActionKind::kForward),
                                       in_rounds(plan, stage, ActionKind::kBackward),
                                       head_start(schedule, plan, stage));
      computations.push_back(schedule == Schedule::kZeroBubble ? cut_backwards(order, stage)
                                                               : order);
    }
    plan.stages.resize(computations.size());
    add_messages(plan, computations);
    return plan;
  }

 private:
  static std::int64_t head_start(Schedule schedule, const PipelinePlan& plan, int stage) {
    const int num_later = plan.num_stages - 1 - stage;
    if (schedule == Schedule::kGpipe) return plan.num_microbatches;
    if (schedule != Schedule::kInterleaved) return num_later + 1;
    return (plan.chunks_per_stage - 1) * plan.num_stages + 2 * num_later + 1;
  }

  static Actions take_turns(const Actions& forwards, const Actions& backwards,
                            std::int64_t head_start) {
    const auto num_first = static_cast<std::size_t>(std::min(head_start, std::ssize(forwards)));
    Actions order(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(num_first));
    for (std::size_t i = 0; i < backwards.size(); ++i) {
      order.push_back(backwards[i]);
      if (num_first + i < forwards.size()) order.push_back(forwards[num_first + i]);
    }
    return order;
  }

  static Actions cut_backwards(const Actions& order, int stage) {
    Actions cut, weight_halves;
    for (Action action : order) {
      if (action.kind != ActionKind::kBackward) {
        cut.push_back(action);
        continue;
      }
      action.kind = ActionKind::kInputBackward;
      cut.push_back(action);
      action.kind = ActionKind::kWeightBackward;
      weight_halves.push_back(action);
      if (std::ssize(weight_halves) <= stage) continue;
      cut.push_back(weight_halves.front());
      weight_halves.erase(weight_halves.begin());
    }
    cut.insert(cut.end(), weight_halves.begin(), weight_halves.end());
    return cut;
  }

  // A message enters both lists in the same moment, right after what it sends.
  static void add_messages(PipelinePlan& plan, const std::vector<Actions>& computations) {
    std::vector<std::span<const Action>> left(computations.begin(), computations.end());
    std::set<Action> received;
    const auto list = [&plan](const Action& action) { actions_of(plan, action).push_back(action); };
    for (bool goes_on = true; std::exchange(goes_on, false);) {
      for (std::span<const Action>& actions : left) {
        if (actions.empty()) continue;
        const Action& next = actions.front();
        if (has_input(plan, next) && !received.contains(input_of(next))) continue;
        list(next);
        if (has_output(plan, next)) {
          list(output_of(next));
          list(other_end(output_of(next)));
          received.insert(other_end(output_of(next)));
        }
        actions = actions.subspan(1);
        goes_on = true;
      }
    }
    for (const std::span<const Action>& actions : left)
      check(actions.empty(), "every stage waits for another one to compute something first");
  }

  static Actions in_rounds(const PipelinePlan& plan, int stage, ActionKind kind) {
    Actions actions;
    const std::int64_t p = plan.num_stages, m = plan.num_microbatches;
    const std::int64_t round = plan.chunks_per_stage == 1 ? m : p;
    for (std::int64_t first = 0; first < m; first += round) {
      for (int i = 0; i < plan.chunks_per_stage; ++i) {
        const int nth = kind == ActionKind::kForward ? i : plan.chunks_per_stage - 1 - i;
        for (std::int64_t j = first; j < std::min(first + round, m); ++j)
          actions.push_back({kind, stage + nth * plan.num_stages, j});
      }
    }
    return actions;
  }
  static Actions& actions_of(PipelinePlan& plan, const Action& action) {
    return plan.stages[static_cast<std::size_t>(plan.stage_of(action.chunk))];
  }
  static bool is_forward(const Action& action) { return action.kind == ActionKind::kForward; }
  static bool has_input(const PipelinePlan& plan, const Action& action) {
    if (action.kind == ActionKind::kWeightBackward) return false;
    return action.chunk != (is_forward(action) ? 0 : plan.num_chunks() - 1);
  }
  static bool has_output(const PipelinePlan& plan, const Action& action) {
    if (action.kind == ActionKind::kWeightBackward) return false;
    return action.chunk != (is_forward(action) ? plan.num_chunks() - 1 : 0);
  }
  static Action input_of(const Action& action) {
    return {is_forward(action) ? ActionKind::kRecvActivation : ActionKind::kRecvGradient,
            action.chunk, action.microbatch};
  }
  static Action output_of(const Action& action) {
    return {is_forward(action) ? ActionKind::kSendActivation : ActionKind::kSendGradient,
            action.chunk, action.microbatch};
  }
};

}  // namespace ladder::step8
