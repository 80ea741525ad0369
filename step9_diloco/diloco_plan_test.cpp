#include "step9_diloco/diloco_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The inner steps, up to `last`, after which an average starts, or one is finished.
std::vector<std::int64_t> starts(const DilocoOptions& options, std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= last; ++step)
    if (plan_diloco(options, step).starts) steps.push_back(step);
  return steps;
}
std::vector<std::int64_t> ends(const DilocoOptions& options, std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= last; ++step)
    if (plan_diloco(options, step).finishes) steps.push_back(step);
  return steps;
}

TEST(DilocoPlan, OneFragmentIsAveragedAtTheEndOfEachRound) {
  const DilocoOptions options = {.sync_every = 4};
  EXPECT_THAT(starts(options, 12), ElementsAre(4, 8, 12));
  EXPECT_THAT(ends(options, 12), ElementsAre(4, 8, 12));
}

TEST(DilocoPlan, FragmentsTakeTurns) {
  const DilocoOptions options = {.sync_every = 6, .num_fragments = 2};
  EXPECT_EQ(steps_per_round(options), 3);
  EXPECT_THAT(ends(options, 12), ElementsAre(3, 6, 9, 12));
  for (const std::int64_t outer_steps : {0, 2, 4})
    EXPECT_EQ(fragment_of_round(options, outer_steps), 0);
  for (const std::int64_t outer_steps : {1, 3, 5})
    EXPECT_EQ(fragment_of_round(options, outer_steps), 1);
}

TEST(DilocoPlan, ADelayLetsTrainingGoOnWhileAnAverageIsInFlight) {
  const DilocoOptions options = {.sync_every = 10, .num_fragments = 2, .sync_delay = 2};
  EXPECT_THAT(starts(options, 10), ElementsAre(3, 8));
  EXPECT_THAT(ends(options, 10), ElementsAre(5, 10));
}

TEST(DilocoPlan, EveryInnerStepMayBeARound) {
  const DilocoOptions options = {.sync_every = 3, .num_fragments = 3};
  for (std::int64_t step = 1; step <= 6; ++step)
    EXPECT_EQ(plan_diloco(options, step), (DilocoAction{.starts = true, .finishes = true})) << step;
}

// Each average that starts is finished before the next one starts.
TEST(DilocoPlan, OneFragmentIsInFlightAtATime) {
  for (std::int64_t n = 1; n <= 4; ++n) {
    for (std::int64_t length = 1; length <= 5; ++length) {
      for (std::int64_t delay = 0; delay < length; ++delay) {
        const DilocoOptions options = {
            .sync_every = n * length, .num_fragments = n, .sync_delay = delay};
        check_diloco(options);
        bool is_in_flight = false;
        for (std::int64_t step = 1; step <= 3 * options.sync_every; ++step) {
          const DilocoAction action = plan_diloco(options, step);
          if (action.starts) {
            EXPECT_FALSE(is_in_flight);
            is_in_flight = true;
          }
          if (action.finishes) {
            EXPECT_TRUE(is_in_flight);
            is_in_flight = false;
          }
        }
        EXPECT_FALSE(is_in_flight) << "a run of whole rounds leaves nothing behind";
      }
    }
  }
}

TEST(DilocoPlan, TheOuterOptimizersDefaultsAreThePapers) {
  EXPECT_EQ(DilocoOptions{}.outer_lr, 0.7);
  EXPECT_EQ(DilocoOptions{}.outer_momentum, 0.9);
}

TEST(DilocoPlan, ImpossibleOptionsAreRefused) {
  const auto expect_refused = [](const DilocoOptions& options, const char* name) {
    EXPECT_THAT([&] { check_diloco(options); }, ThrowsMessage<UsageError>(HasSubstr(name)));
  };
  check_diloco({});
  expect_refused({.num_fragments = 0}, "--fragments is 0");
  expect_refused({.sync_every = 2, .num_fragments = 3},
                 "--fragments 3 is more than --sync-every 2");
  expect_refused({.sync_every = 7, .num_fragments = 2}, "--sync-every 7 is not divisible");
  expect_refused({.sync_every = 6, .num_fragments = 2, .sync_delay = 3}, "from 0 to 2");
  expect_refused({.sync_delay = -1}, "--sync-delay is -1");
  expect_refused({.alpha = 1.5}, "--alpha is 1.5");
  expect_refused({.alpha = -0.1}, "--alpha");
  expect_refused({.outer_lr = -1}, "--outer-lr");
  expect_refused({.outer_momentum = 1}, "--outer-momentum");
}

}  // namespace
}  // namespace ladder
