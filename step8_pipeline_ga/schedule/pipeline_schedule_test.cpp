#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"

namespace ladder {
namespace {

// What a stage does, chunks counted on the stage: "F0.c1" is its second chunk.
std::string listed(const PipelinePlan& plan, int stage, bool with_messages) {
  std::string text;
  for (Action action : plan.stages.at(static_cast<std::size_t>(stage))) {
    if (is_message(action.kind) && !with_messages) continue;
    action.chunk /= plan.num_stages;
    text += (text.empty() ? "" : with_messages ? ", " : " ") + to_string(action);
  }
  return text;
}

// Five microbatches for two stages: a round of three and one of two, never one that is too short.
TEST(PipelineSchedule, LongerRoundsComeFirst) {
  EXPECT_EQ(listed(plan_forwards(2, 5, 2), 0, false),
            "F0 F1 F2 F0.c1 F1.c1 F2.c1 F3 F4 F3.c1 F4.c1");
  EXPECT_EQ(listed(plan_forwards(3, 5, 2), 0, false),
            "F0 F1 F2 F3 F4 F0.c1 F1.c1 F2.c1 F3.c1 F4.c1");
  EXPECT_EQ(listed(plan_forwards(3, 2, 2), 0, false), "F0 F1 F0.c1 F1.c1");
}

TEST(PipelineSchedule, EvaluationHasNoBackwardAndNoGradients) {
  const PipelinePlan plan = plan_forwards(2, 2);
  EXPECT_EQ(listed(plan, 0, true), "F0, send activation 0, F1, send activation 1");
  EXPECT_EQ(listed(plan, 1, true), "receive activation 0, F0, receive activation 1, F1");
}

// Sends follow what they send; a receive comes where its sender sends, not before.
TEST(PipelineSchedule, MessagesLeaveAsSoonAsTheyCan) {
  const PipelinePlan plan = plan_pipeline(Schedule::k1f1b, 2, 3);
  EXPECT_EQ(listed(plan, 0, true),
            "F0, send activation 0, F1, send activation 1, receive gradient 0, B0, F2, "
            "send activation 2, receive gradient 1, B1, receive gradient 2, B2");
  EXPECT_EQ(listed(plan, 1, true),
            "receive activation 0, F0, receive activation 1, B0, send gradient 0, F1, B1, "
            "receive activation 2, send gradient 1, F2, B2, send gradient 2");
}

// On the way forward and on the way back, a stage sends what it has before it receives the next.
TEST(PipelineSchedule, StagesSendBeforeTheyReceive) {
  const PipelinePlan plan = plan_pipeline(Schedule::kGpipe, 3, 2);
  EXPECT_EQ(listed(plan, 1, true),
            "receive activation 0, F0, send activation 0, receive activation 1, F1, "
            "send activation 1, receive gradient 0, B0, send gradient 0, receive gradient 1, B1, "
            "send gradient 1");
}

// For every action that is not a message, what it sends is listed before its stage computes again.
void expect_prompt_sends(const PipelinePlan& plan) {
  for (const std::vector<Action>& actions : plan.stages) {
    Action last;
    for (const Action& action : actions) {
      const bool is_send =
          action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
      if (is_send) {
        EXPECT_EQ(std::tie(action.chunk, action.microbatch), std::tie(last.chunk, last.microbatch));
      } else if (!is_message(action.kind)) {
        last = action;
      }
    }
  }
}

TEST(PipelineSchedule, EveryPlanPassesTheCheck) {
  using enum Schedule;
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
      for (const auto& [schedule, chunks] : {std::pair{kGpipe, 1},
                                             {k1f1b, 1},
                                             {kZeroBubble, 1},
                                             {kInterleaved, 1},
                                             {kInterleaved, 2},
                                             {kInterleaved, 3},
                                             {kInterleaved, 4}}) {
        if (stages == 1 && chunks > 1) continue;
        SCOPED_TRACE(concat(to_string(schedule), ", ", stages, " stages, ", microbatches,
                            " microbatches, ", chunks, " chunks"));
        const PipelinePlan plan = plan_pipeline(schedule, stages, microbatches, chunks);
        ASSERT_EQ(what_is_wrong_with(plan), "");
        ASSERT_EQ(plan, plan_pipeline(schedule, stages, microbatches, chunks));
        expect_prompt_sends(plan);
        ASSERT_EQ(what_is_wrong_with(plan_forwards(stages, microbatches, chunks)), "");
      }
    }
  }
}

void expect_unplannable(Schedule schedule, int stages, std::int64_t microbatches, int chunks,
                        const char* said) {
  const auto plan = [=] { plan_pipeline(schedule, stages, microbatches, chunks); };
  expect_throws<CheckError>(plan, {said});
  const auto forwards = [=] { plan_forwards(stages, microbatches, chunks); };
  if (schedule == Schedule::kInterleaved) {
    expect_throws<CheckError>(forwards, {said});
  }
}

TEST(PipelineSchedule, RefusesWhatItCannotPlan) {
  expect_unplannable(Schedule::k1f1b, 0, 4, 1, "at least one stage");
  expect_unplannable(Schedule::k1f1b, 2, 0, 1, "not 2, 0 and 1");
  expect_unplannable(Schedule::kInterleaved, 2, -1, 1, "not 2, -1 and 1");
  expect_unplannable(Schedule::kInterleaved, 2, 4, 0, "not 2, 4 and 0");
  expect_unplannable(Schedule::kZeroBubble, 2, 4, 2, "zero-bubble has one chunk per stage, not 2");
  expect_unplannable(Schedule::kInterleaved, 1, 4, 2, "a single stage has nothing to interleave");
}

}  // namespace
}  // namespace ladder
