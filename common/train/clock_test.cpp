#include "common/train/clock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr double kBytes = 4096;  // of a gradient

// Takes so many seconds for 4,096 bytes.
Link link_of(double seconds, double latency_s = 0) {
  return {.latency_us = latency_s * 1e6,
          .gbit_per_s = seconds > 0 ? kBytes * 8e-9 / seconds : 1e30};
}

// In two messages of two rounds.
PlannedSend planned(const Send& send, std::int64_t bytes = 4096) {
  return {.send = send,
          .traffic = {.bytes_sent = bytes, .messages = 2},
          .links = {.inside = {.rounds = 2, .bytes = bytes}, .outside = {}}};
}

std::vector<PlannedSend> for_each_layer(Wait wait) {
  std::vector<PlannedSend> sends;
  for (const int layer : {2, 1, 0})
    sends.push_back(
        planned({.phase = StepPhase::kAfterBackward, .layer = layer, .numel = 1, .wait = wait}));
  return sends;
}

// A rank with three layers of 1 s forward and 2 s backward.
StepPlan plan_of(std::vector<PlannedSend> sends, std::int64_t microbatches = 1) {
  RankPlan rank = {.sends = std::move(sends)};
  for (std::int64_t m = 0; m < microbatches; ++m) {
    rank.order.push_back({'F', 0, m});
    rank.order.push_back({'B', 0, m});
  }
  return {.step = "made", .microbatches = microbatches, .chunks = {{0, 1, 2}}, .ranks = {rank}};
}
const ComputeSpeed kSpeed = {.forward_s = {1, 1, 1}, .backward_s = {2, 2, 2}};

double step_s(const StepPlan& plan, const Links& links, const ComputeSpeed& speed = kSpeed) {
  return estimate(plan, speed, links).step_s;
}

// The link takes 1 s for each of three gradients.
TEST(Clock, HidesWhatTravelsWhileItComputes) {
  const auto after = [](Wait wait) { return plan_of(for_each_layer(wait)); };
  StepPlan gradients = plan_of({});
  for (int i = 0; i < 3; ++i)
    gradients.ranks[0].sends.push_back(planned({.phase = StepPhase::kGradients, .numel = 1}));
  EXPECT_NEAR(step_s(gradients, link_of(1)), 9 + 3, 1e-9);
  EXPECT_NEAR(step_s(after(Wait::kForPhase), link_of(1)), 9 + 1, 1e-9);
  EXPECT_NEAR(step_s(after(Wait::kForNext), link_of(1)), 9 + 1, 1e-9);
  EXPECT_NEAR(estimate(after(Wait::kForNext), kSpeed, link_of(1)).waiting_s, 1, 1e-9);
  // A slow link is busy with one gradient when the next one is ready, and works on for 5 s.
  EXPECT_NEAR(step_s(after(Wait::kForPhase), link_of(3)), 9 + 5, 1e-9);
}

TEST(Clock, SendsInTheLastMicrobatchOrInEach) {
  EXPECT_NEAR(step_s(plan_of(for_each_layer(Wait::kForNext), 2), link_of(1)), 18 + 1, 1e-9);
  StepPlan each = plan_of(for_each_layer(Wait::kAtOnce), 2);
  for (PlannedSend& send : each.ranks[0].sends) send.send.times = 2;
  EXPECT_NEAR(step_s(each, link_of(1)), 18 + 2 * 3, 1e-9);
}

TEST(Clock, WaitsForALayersParameters) {
  std::vector<PlannedSend> ahead;
  for (const int unit : {0, 1, 2})
    ahead.push_back(planned({.phase = StepPhase::kBeforeForward,
                             .operation = CommOp::kAllGather,
                             .wait = Wait::kForLayer,
                             .needed_by = unit}));
  // The first is waited for, the others come meanwhile, if the link is fast enough.
  EXPECT_NEAR(step_s(plan_of(ahead), link_of(1)), 9 + 1, 1e-9);
  EXPECT_NEAR(step_s(plan_of(ahead), link_of(3)), 9 + 3 + 2 + 2, 1e-9);
}

// Of a layer's 2 s, gradients of weights take one: for a second sum in the same layer, half of it.
TEST(Clock, HidesASumBehindGradientsOfWeights) {
  EXPECT_NEAR(step_s(plan_of(for_each_layer(Wait::kForWeights)), link_of(1)), 9, 1e-9);
  EXPECT_NEAR(step_s(plan_of(for_each_layer(Wait::kForWeights)), link_of(3)), 9 + 3 * 2, 1e-9);
  const PlannedSend sum = planned(
      {.phase = StepPhase::kAfterBackward, .layer = 1, .numel = 1, .wait = Wait::kForWeights});
  EXPECT_NEAR(step_s(plan_of({sum, sum}), link_of(1)), 9 + 2 * 0.5, 1e-9);
}

TEST(Clock, CountsOptimizerNormsAndRest) {
  StepPlan plan = plan_of({});
  plan.ranks[0].updated = 10;
  plan.ranks[0].normed = 30;
  ComputeSpeed speed = kSpeed;
  speed.update_s = 0.1;
  speed.norm_s = 0.2;
  speed.rest_s = 0.5;
  EXPECT_NEAR(step_s(plan, link_of(1), speed), 9 + 1 + 6 + 0.5, 1e-9);
}

// An operation passes the inner link first; while one is outside, the next may be inside. Of these,
// 2 s are inside, and 2 s outside.
TEST(Clock, PassesTwoLinks) {
  const Links links = {link_of(1), link_of(1, 1)};
  const ComputeSpeed idle = {.forward_s = {0, 0, 0}, .backward_s = {0, 0, 0}};
  PlannedSend send = planned({.phase = StepPhase::kGradients, .numel = 1, .wait = Wait::kForPhase});
  send.links = {.inside = {.rounds = 1, .bytes = 2 * 4096},
                .outside = {.rounds = 1, .bytes = 4096}};
  EXPECT_NEAR(step_s(plan_of({send}), links, idle), 4, 1e-9);
  EXPECT_NEAR(step_s(plan_of({send, send}), links, idle), 6, 1e-9);
  EXPECT_NEAR(step_s(plan_of({send, send, send}), links, idle), 8, 1e-9);
  send.send.wait = Wait::kAtOnce;
  EXPECT_NEAR(step_s(plan_of({send, send}), links, idle), 8, 1e-9);
}

// In one of ten steps of 9 s, on a link that takes 30 s; the processor takes 2 s to copy.
TEST(Clock, SpreadsWhatIsNotSentInEachStep) {
  ComputeSpeed speed = kSpeed;
  speed.message_s = 1;
  const auto with = [&](Wait wait, int needed_by) {
    StepPlan plan = plan_of(
        {planned({.phase = StepPhase::kEnd, .numel = 1, .wait = wait, .needed_by = needed_by})});
    plan.ranks[0].in_steps = 10;
    return step_s(plan, link_of(30), speed);
  };
  EXPECT_NEAR(with(Wait::kAtOnce, 0), 9 + 3.2, 1e-9);
  EXPECT_NEAR(with(Wait::kForSteps, 2), 9 + 1.4, 1e-9);
  EXPECT_NEAR(with(Wait::kForSteps, 5), 9 + 0.2, 1e-9);
}

// GPipe with two equal stages and two microbatches: (m + p - 1)(f + b), and every message on the way
// back and forth.
StepPlan two_stages() {
  const auto message = [](StepPhase phase, int layer, CommOp operation, Wait wait) {
    PlannedSend send = planned({.phase = phase,
                                .layer = layer,
                                .operation = operation,
                                .numel = 1,
                                .wait = wait,
                                .times = 2});
    send.links.inside.rounds = 1;
    return send;
  };
  StepPlan plan = {.step = "made", .microbatches = 2, .chunks = {{0, 1}, {2}}, .ranks = {{}, {}}};
  plan.ranks[0].sends = {message(StepPhase::kAfterForward, 1, CommOp::kSend, Wait::kForNothing),
                         message(StepPhase::kBeforeBackward, 1, CommOp::kRecv, Wait::kAtOnce)};
  plan.ranks[1].sends = {message(StepPhase::kBeforeForward, 2, CommOp::kRecv, Wait::kAtOnce),
                         message(StepPhase::kAfterBackward, 2, CommOp::kSend, Wait::kForNothing)};
  for (const std::size_t stage : {0, 1}) {
    plan.ranks[stage].rank = static_cast<int>(stage);
    plan.ranks[stage].order = {{'F', stage, 0}, {'F', stage, 1}, {'B', stage, 0}, {'B', stage, 1}};
  }
  return plan;
}
const ComputeSpeed kStages = {.forward_s = {0, 1, 1}, .backward_s = {0, 2, 2}};

TEST(Clock, RunsAllStagesOfAPipeline) {
  EXPECT_NEAR(step_s(two_stages(), {}, kStages), 9, 1e-9);
  EXPECT_NEAR(step_s(two_stages(), link_of(0, 1), kStages), 9 + 2, 1e-9);
  ComputeSpeed shared = kStages;  // nobody is idle: 12 s of work on one core, half each
  shared.sharing = 2;
  EXPECT_NEAR(step_s(two_stages(), {}, shared), 6, 1e-9);
}

TEST(Clock, WaitsForTheSlowestOfAGroup) {
  StepPlan plan = two_stages();
  for (RankPlan& rank : plan.ranks)
    rank.sends.push_back(planned({.phase = StepPhase::kEnd, .group = {0, 2, 2, 1}}));
  plan.ranks[1].rank = 2;      // ranks 0 and 2 are the group
  plan.ranks[1].updated = 30;  // from 7 s on
  ComputeSpeed speed = kStages;
  speed.update_s = 0.1;
  EXPECT_NEAR(step_s(plan, {}, speed), 9 + 1, 1e-9);
  plan.ranks[1].rank = 1;  // nobody waits for it
  EXPECT_NEAR(step_s(plan, {}, speed), 9, 1e-9);
}

TEST(Clock, SaysThatAStepNeverEnds) {
  StepPlan plan = two_stages();
  plan.ranks[0].sends.erase(plan.ranks[0].sends.begin());  // what the other stage waits for
  EXPECT_THAT([&] { estimate(plan, kStages, {}); },
              testing::ThrowsMessage<CheckError>(testing::HasSubstr("2 rank(s) wait forever")));
}

TEST(Clock, TellsWhatHappened) {
  std::vector<ClockSpan> spans;
  const StepPlan plan = plan_of(for_each_layer(Wait::kForPhase));
  const Estimate found = estimate(plan, kSpeed, link_of(1), &spans);
  double computed = 0, on_link = 0, last = 0;
  for (const ClockSpan& span : spans) {
    (span.lane == ClockSpan::kComputing ? computed : on_link) += span.end_s - span.begin_s;
    last = std::max(last, span.end_s);
  }
  EXPECT_NEAR(computed, 9, 1e-9);
  EXPECT_NEAR(on_link, 3, 1e-9);
  EXPECT_NEAR(last, found.step_s, 1e-9);
}

TEST(Clock, ReadsWhatATrainerSays) {
  const Json facts = {
      {"step", "made"},
      {"microbatches", 4},
      {"layers", {nullptr, nullptr, nullptr}},
      {"schedule",
       {{"chunks", {{0, 1}, {2}}},
        {"stages", {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F1.0", "F1.1", "I1.0", "W1.1"}}}}},
      {"ranks", Json::array()}};
  Json with_ranks = facts;
  const Json send = {{"phase", "after_forward"},
                     {"layer", 1},
                     {"operation", "send"},
                     {"elements", 8},
                     {"wait", "for_nothing"},
                     {"needed_by", 0},
                     {"group", {0, 2, 2, 1}},
                     {"bytes_sent", 32},
                     {"messages", 1},
                     {"inside", {{"rounds", 1}, {"bytes", 32}}},
                     {"outside", {{"rounds", 0}, {"bytes", 0}}},
                     {"times", 4}};
  for (int rank = 0; rank < 2; ++rank)
    with_ranks["ranks"].push_back(
        {{"rank", rank}, {"in_steps", 1}, {"updated", 5}, {"normed", 7}, {"plan", {send}}});
  const StepPlan plan = step_plan_of(with_ranks);
  ASSERT_EQ(plan.ranks.size(), 2);
  EXPECT_EQ(plan.ranks[1].order.size(), 8);  // two flushes of two microbatches
  EXPECT_EQ(plan.ranks[1].order[6].kind, 'I');
  EXPECT_EQ(plan.ranks[1].order[6].microbatch, 2);
  EXPECT_EQ(plan.ranks[0].sends[0].send.wait, Wait::kForNothing);
  EXPECT_EQ(plan.ranks[0].sends[0].links.inside, (LinkUse{1, 32}));
  with_ranks["ranks"][0]["plan"][0]["wait"] = "for_ever";
  EXPECT_THAT([&] { step_plan_of(with_ranks); },
              testing::ThrowsMessage<CheckError>(testing::HasSubstr("'for_ever' is unknown")));
  EXPECT_THROW(step_plan_of({{"step", "made"}}), CheckError);
}

}  // namespace
}  // namespace ladder
