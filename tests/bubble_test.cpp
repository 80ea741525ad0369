// Step 8's runner is as fast as its schedule allows, and its trace says so: in real time, over MPI,
// on paced computing.
//
// On a busy machine every sleep and every message takes a little longer, whatever its length. So a
// promise counts as kept if one of a few attempts keeps it, each at a slower pace than the one
// before. A run that overlaps nothing must break the same promise at any pace, or the figures would
// prove nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

#include "benchmarks/bubble_measurement.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

constexpr double kPaces[] = {1, 2, 4, 8};  // times 10 ms for a forward
constexpr double kSlack = 1.1;             // how much longer than the formula it may take

class Bubble : public ::testing::TestWithParam<Schedule> {};

// All ranks have the same timelines, so they agree on whether to try again.
TEST_P(Bubble, TakesTheTimeOfTheFormulaAndRemembersAsManyMicrobatches) {
  Communicator& stages = test_world().comm();
  const int num_stages = stages.size();
  double ratio = std::numeric_limits<double>::infinity();
  for (const double pace : kPaces) {
    if (ratio <= kSlack) break;
    const PacedPipeline paced = {.schedule = GetParam(),
                                 .chunks_per_stage = GetParam() == Schedule::kInterleaved ? 2 : 1,
                                 .forward_s = pace * 0.010,
                                 .backward_s = pace * 0.020};
    const double formula_s = paced.predicted_s(num_stages);
    const TimelineSummary measured = summarize(measure(paced, stages));
    ratio = measured.total_s / formula_s;
    EXPECT_GE(ratio, 0.999) << "faster than its computing allows";
    for (int stage = 0; stage < num_stages; ++stage) {
      EXPECT_EQ(measured.live[static_cast<std::size_t>(stage)],
                most_live_microbatches(paced.schedule, num_stages, paced.num_microbatches,
                                       paced.chunks_per_stage, stage));
    }
    if (stages.rank() > 0) continue;
    std::printf("%s on %d stages: %.1f ms, by the formula %.1f\n", to_string(GetParam()),
                num_stages, 1e3 * measured.total_s, 1e3 * formula_s);
  }
  EXPECT_LE(ratio, kSlack);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Bubble,
                         ::testing::Values(Schedule::kGpipe, Schedule::k1f1b,
                                           Schedule::kInterleaved, Schedule::kZeroBubble));

TEST(BubbleControl, FlushesOfOneMicrobatchOverlapNothing) {
  Communicator& stages = test_world().comm();
  const PacedPipeline paced;
  const TimelineSummary measured = summarize(measure(paced, stages, /*flush_size=*/1));
  EXPECT_GT(measured.total_s, 1.5 * paced.predicted_s(stages.size()));
  EXPECT_THAT(measured.live, ::testing::Each(1));
}

}  // namespace
}  // namespace ladder
