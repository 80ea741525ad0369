#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

std::vector<std::string> computations(const PipelinePlan& plan) {
  std::vector<std::string> texts;
  for (int stage = 0; stage < plan.num_stages; ++stage) texts.push_back(listed(plan, stage, false));
  return texts;
}

TEST(PipelineSchedule, GpipeGoesForwardThenBackward) {
  EXPECT_THAT(computations(plan_pipeline(Schedule::kGpipe, 2, 3)),
              ElementsAre("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"));
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_THAT(computations(plan_pipeline(Schedule::k1f1b, 2, 4)),
              ElementsAre("F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"));
  EXPECT_THAT(computations(plan_pipeline(Schedule::k1f1b, 3, 2)),
              ElementsAre("F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"));
  EXPECT_THAT(computations(plan_pipeline(Schedule::k1f1b, 1, 2)), ElementsAre("F0 B0 F1 B1"));
}

TEST(PipelineSchedule, InterleavedGoesThroughTheChunksInRounds) {
  EXPECT_THAT(
      computations(plan_pipeline(Schedule::kInterleaved, 2, 4, 2)),
      ElementsAre("F0 F1 F0.c1 F1.c1 F2 B0.c1 F3 B1.c1 F2.c1 B0 F3.c1 B1 B2.c1 B3.c1 B2 B3",
                  "F0 F1 F0.c1 B0.c1 F1.c1 B1.c1 F2 B0 F3 B1 F2.c1 B2.c1 F3.c1 B3.c1 B2 B3"));
}

// Five microbatches for two stages: a round of three and one of two, never one that is too short.
TEST(PipelineSchedule, LongerRoundsComeFirst) {
  const std::string forwards = computations(plan_forwards(2, 5, 2)).front();
  EXPECT_EQ(forwards, "F0 F1 F2 F0.c1 F1.c1 F2.c1 F3 F4 F3.c1 F4.c1");
  EXPECT_EQ(computations(plan_forwards(3, 5, 2)).front(),
            "F0 F1 F2 F3 F4 F0.c1 F1.c1 F2.c1 F3.c1 F4.c1");
  EXPECT_EQ(computations(plan_forwards(3, 2, 2)).front(), "F0 F1 F0.c1 F1.c1");
}

TEST(PipelineSchedule, ZeroBubbleDelaysWeightHalves) {
  EXPECT_THAT(
      computations(plan_pipeline(Schedule::kZeroBubble, 3, 4)),
      ElementsAre("F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",  //
                  "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3", "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"));
  EXPECT_THAT(computations(plan_pipeline(Schedule::kZeroBubble, 4, 1)),
              ElementsAre("F0 I0 W0", "F0 I0 W0", "F0 I0 W0", "F0 I0 W0"));
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
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
      for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble}) {
        const PipelinePlan plan = plan_pipeline(schedule, stages, microbatches);
        ASSERT_EQ(what_is_wrong_with(plan), "")
            << to_string(schedule) << ", " << stages << " stages, " << microbatches;
        expect_prompt_sends(plan);
      }
      for (int chunks = 1; chunks <= (stages == 1 ? 1 : 4); ++chunks) {
        const PipelinePlan plan =
            plan_pipeline(Schedule::kInterleaved, stages, microbatches, chunks);
        ASSERT_EQ(what_is_wrong_with(plan), "")
            << stages << " stages, " << microbatches << " microbatches, " << chunks << " chunks";
        expect_prompt_sends(plan);
        ASSERT_EQ(what_is_wrong_with(plan_forwards(stages, microbatches, chunks)), "");
      }
    }
  }
}

TEST(PipelineSchedule, APlanIsTheSameEveryTime) {
  EXPECT_EQ(plan_pipeline(Schedule::kInterleaved, 4, 7, 2),
            plan_pipeline(Schedule::kInterleaved, 4, 7, 2));
  EXPECT_NE(plan_pipeline(Schedule::k1f1b, 4, 7), plan_pipeline(Schedule::kGpipe, 4, 7));
}

template <class F>
std::string refusal(F plan) {
  try {
    plan();
  } catch (const CheckError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PipelineSchedule, RefusesWhatItCannotPlan) {
  EXPECT_THAT(refusal([] { plan_pipeline(Schedule::k1f1b, 0, 4); }),
              HasSubstr("at least one stage"));
  EXPECT_THAT(refusal([] { plan_pipeline(Schedule::k1f1b, 2, 0); }), HasSubstr("not 2, 0 and 1"));
  EXPECT_THAT(refusal([] { plan_pipeline(Schedule::kInterleaved, 2, 4, 0); }),
              HasSubstr("not 2, 4 and 0"));
  EXPECT_THAT(refusal([] { plan_forwards(2, -1); }), HasSubstr("not 2, -1 and 1"));
  EXPECT_THAT(refusal([] { plan_pipeline(Schedule::kZeroBubble, 2, 4, 2); }),
              HasSubstr("zero-bubble has one chunk per stage, not 2"));
  EXPECT_THAT(refusal([] { plan_pipeline(Schedule::kInterleaved, 1, 4, 2); }),
              HasSubstr("a single stage has nothing to interleave"));
  EXPECT_THAT(refusal([] { plan_forwards(1, 4, 2); }), HasSubstr("nothing to interleave"));
}

TEST(PipelineSchedule, NamesActions) {
  EXPECT_EQ(to_string(Action{ActionKind::kForward, 0, 3}), "F3");
  EXPECT_EQ(to_string(Action{ActionKind::kForward, 1, 3}), "F3.c1");
  EXPECT_EQ(to_string(Action{ActionKind::kWeightBackward, 0, 12}), "W12");
  EXPECT_EQ(to_string(Action{ActionKind::kRecvGradient, 0, 3}), "receive gradient 3");
  EXPECT_STREQ(to_string(Schedule::kZeroBubble), "zero-bubble");
}

TEST(PipelineSchedule, AMessageHasTwoEnds) {
  const Action send = {ActionKind::kSendActivation, 2, 5};
  EXPECT_EQ(other_end(send), (Action{ActionKind::kRecvActivation, 3, 5}));
  EXPECT_EQ(other_end(other_end(send)), send);
  EXPECT_EQ(other_end({ActionKind::kSendGradient, 2, 5}),
            (Action{ActionKind::kRecvGradient, 1, 5}));
  EXPECT_EQ(other_end({ActionKind::kRecvGradient, 1, 5}),
            (Action{ActionKind::kSendGradient, 2, 5}));
  EXPECT_THROW(other_end({ActionKind::kForward, 2, 5}), CheckError);
}

}  // namespace
}  // namespace ladder
