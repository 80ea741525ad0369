#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

constexpr PipelineCosts kEqual = {.forward_s = 1, .backward_s = 1};
constexpr PipelineCosts kTwice = {.forward_s = 1, .backward_s = 2};

TimelineSummary simulated_summary(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                                  int chunks_per_stage, const PipelineCosts& costs) {
  return summarize(
      simulate(plan_pipeline(schedule, num_stages, num_microbatches, chunks_per_stage), costs));
}

// The time of a flush, its bubble in both meanings, and what is remembered, as the papers have it.
// Costs are binary fractions, so that sums are exact.
void expect_formulas(Schedule schedule, int stages, std::int64_t microbatches, int chunks,
                     const PipelineCosts& costs) {
  SCOPED_TRACE(concat(to_string(schedule), ", ", stages, " stages, ", microbatches,
                      " microbatches, ", chunks, " chunks, backward ", costs.backward_s));
  const TimelineSummary summary = simulated_summary(schedule, stages, microbatches, chunks, costs);
  for (int stage = 0; stage < stages; ++stage) {
    EXPECT_EQ(summary.live[static_cast<std::size_t>(stage)],
              most_live_microbatches(schedule, stages, microbatches, chunks, stage));
  }
  if (schedule == Schedule::kZeroBubble && microbatches < stages) return;
  const double total_s = formula_s(schedule, stages, microbatches, chunks, costs);
  const double ideal = ideal_s(schedule, microbatches, chunks, costs);
  EXPECT_EQ(summary.total_s, total_s);
  EXPECT_NEAR(summary.bubble_per_ideal, (total_s - ideal) / ideal, 1e-12);
  EXPECT_NEAR(summary.bubble_per_total, (total_s - ideal) / total_s, 1e-12);
}

TEST(ScheduleSimulation, AgreesWithTheFormulas) {
  const PipelineCosts uneven = {
      .forward_s = 1, .backward_s = 2, .input_backward_s = 1.5, .weight_backward_s = 0.5};
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
      for (const PipelineCosts& costs : {kEqual, kTwice, uneven}) {
        for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble}) {
          expect_formulas(schedule, stages, microbatches, 1, costs);
        }
        for (int chunks = 1; chunks <= (stages == 1 ? 1 : 4); ++chunks) {
          expect_formulas(Schedule::kInterleaved, stages, microbatches, chunks, costs);
        }
      }
    }
  }
}

// m (t_f + t_b) + (p − 1)(t_f + t_I − t_W), and where this is no longer so.
TEST(ScheduleSimulation, ZeroBubbleHidesTheWgrads) {
  const PipelineCosts costs = {
      .forward_s = 2, .backward_s = 0, .input_backward_s = 3, .weight_backward_s = 1};
  EXPECT_EQ(formula_s(Schedule::kZeroBubble, 5, 9, 1, costs), 9 * 6 + 4 * (2 + 3 - 1));
  EXPECT_EQ(simulated_summary(Schedule::kZeroBubble, 5, 9, 1, costs).total_s, 70);
  EXPECT_THROW(formula_s(Schedule::kZeroBubble, 5, 4, 1, costs), CheckError);
  const PipelineCosts long_wgrad = {.forward_s = 1, .weight_backward_s = 2};
  EXPECT_THROW(formula_s(Schedule::kZeroBubble, 2, 2, 1, long_wgrad), CheckError);
  EXPECT_EQ(simulated_summary(Schedule::kZeroBubble, 2, 2, 1, long_wgrad).total_s,
            9);  // not 8
}

// A message of l seconds: the sender goes on meanwhile, and whoever needs it waits.
TEST(ScheduleSimulation, LinksDelayTheReceiver) {
  PipelineCosts costs = kTwice;
  costs.link_s = 0.5;
  EXPECT_EQ(simulated_summary(Schedule::k1f1b, 2, 1, 1, costs).total_s, 1 + 0.5 + 3 + 0.5 + 2);
  EXPECT_EQ(simulated_summary(Schedule::k1f1b, 1, 4, 1, costs).total_s, 12);
  // GPipe pays once on the way there and once on the way back, however many microbatches there are.
  EXPECT_EQ(simulated_summary(Schedule::kGpipe, 4, 8, 1, costs).total_s, 33 + 2 * 3 * 0.5);
  // In 1F1B a stage and the next one wait for each other in turn.
  EXPECT_GT(simulated_summary(Schedule::k1f1b, 4, 8, 1, costs).total_s, 33 + 2 * 3 * 0.5);
}

TEST(ScheduleSimulation, AnEvaluationRemembersNothing) {
  EXPECT_THAT(summarize(simulate(plan_forwards(3, 5), kTwice)).live, ::testing::Each(0));
}

TEST(ScheduleSimulation, RefusesAPlanThatCannotGoOn) {
  PipelinePlan plan = plan_pipeline(Schedule::k1f1b, 2, 2);
  std::reverse(plan.stages[0].begin(), plan.stages[0].end());
  expect_throws<CheckError>([&] { simulate(plan, kEqual); }, {"check_plan"});
}

}  // namespace
}  // namespace ladder
