// Schedules that look like 1F1B and are not: each is the right one but for what it overrides.
#pragma once

#include <algorithm>
#include <vector>

#include "step8_pipeline_ga/exercise/right_schedule.hpp"

namespace ladder::step8 {

// ---- when the first backward comes

struct WarmUpTooShort : RightSchedule {  // by one, but for the last stage
  std::int64_t warm_up(const PipelinePlan& plan, int stage) override {
    return std::max(plan.num_stages - stage - 1, 1);
  }
};
struct WarmUpTooLong : RightSchedule {  // by one
  std::int64_t warm_up(const PipelinePlan& plan, int stage) override {
    return plan.num_stages - stage + 1;
  }
};
struct BackwardBeforeForward : RightSchedule {  // warm-up without the forward of the first turn
  std::int64_t warm_up(const PipelinePlan& plan, int stage) override {
    return plan.num_stages - stage - 1;
  }
};
struct SameWarmUpEverywhere : RightSchedule {
  std::int64_t warm_up(const PipelinePlan& plan, int /*stage*/) override { return plan.num_stages; }
};
struct WarmUpGrows : RightSchedule {  // from the first stage to the last
  std::int64_t warm_up(const PipelinePlan& /*plan*/, int stage) override { return stage + 1; }
};

// ---- turns

struct OneTurn : RightSchedule {  // then all forwards, then all backwards
  Actions take_turns(const Actions& forwards, const Actions& backwards,
                     std::int64_t head_start) override {
    Actions order = RightSchedule::take_turns(forwards, backwards, head_start);
    const auto turns_end = order.begin() + std::min(head_start + 2, std::ssize(order));
    std::stable_partition(turns_end, order.end(),
                          [](const Action& action) { return action.kind == ActionKind::kForward; });
    return order;
  }
};
struct LatestFirst : RightSchedule {  // backward of the microbatch that went forward last
  Actions take_turns(const Actions& forwards, const Actions& backwards,
                     std::int64_t head_start) override {
    Actions order = RightSchedule::take_turns(forwards, backwards, head_start), waiting;
    for (Action& action : order) {
      if (action.kind == ActionKind::kForward) {
        waiting.push_back(action);
      } else {
        action.microbatch = waiting.back().microbatch;
        waiting.pop_back();
      }
    }
    return order;
  }
};
struct ForgetsTheRest : RightSchedule {  // the backwards after the last forward
  Actions take_turns(const Actions& forwards, const Actions& backwards,
                     std::int64_t head_start) override {
    Actions order = RightSchedule::take_turns(forwards, backwards, head_start);
    while (order.size() > forwards.size() && order.size() > 2 &&
           order.back().kind != ActionKind::kForward)
      order.pop_back();
    return order;
  }
};
struct ForgetsAForward : RightSchedule {  // when the turns begin
  Actions take_turns(const Actions& forwards, const Actions& backwards,
                     std::int64_t head_start) override {
    Actions order = RightSchedule::take_turns(forwards, backwards, head_start);
    const auto place = std::min(head_start + 1, std::ssize(forwards) - 1);
    std::erase(order, forwards[static_cast<std::size_t>(place)]);
    return order;
  }
};
struct NeedsMoreMicrobatches : RightSchedule {  // than stages
  Actions take_turns(const Actions& forwards, const Actions& backwards,
                     std::int64_t head_start) override {
    check(head_start <= std::ssize(forwards), "fewer microbatches than stages");
    return RightSchedule::take_turns(forwards, backwards, head_start);
  }
};

// ---- messages

// Sends each message next to its computation, whatever the neighbor does.
struct WaitsToSend : RightSchedule {
  void add_messages(PipelinePlan& plan, const std::vector<Actions>& computations) override {
    for (const Actions& actions : computations) {
      for (const Action& action : actions) {
        Actions& own = actions_of(plan, action);
        if (has_input(plan, action)) own.push_back(input_of(action));
        own.push_back(action);
        if (has_output(plan, action)) own.push_back(output_of(action));
      }
    }
  }
};
struct ForgetsTheLastGradient : RightSchedule {  // nobody receives it
  void add_messages(PipelinePlan& plan, const std::vector<Actions>& computations) override {
    RightSchedule::add_messages(plan, computations);
    std::erase(plan.stages[0], Action{ActionKind::kRecvGradient, 0, plan.num_microbatches - 1});
  }
};

// ---- other schedules

struct AlwaysTheSame : RightSchedule {  // 1F1B also where GPipe was asked for
  std::int64_t head_start(Schedule /*schedule*/, const PipelinePlan& plan, int stage) override {
    return warm_up(plan, stage);
  }
};

}  // namespace ladder::step8
