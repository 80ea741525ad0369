// Pure: no ranks are needed to plan for many. Also checks the cost card against the lesson.
#include "step5_zero1/shard_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "common/train/start.hpp"
#include "common/train/theory.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step5_zero1/train.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

FlatLayout hostile_layout(int world_size) {
  return plan_flat_layout(step5::hostile_units(), shard_multiple(world_size));
}

TEST(ShardPlan, RefusesALayoutThatIsNotPaddedForIt) {
  expect_throws<CheckError>([] { plan_shards(hostile_layout(2), 3, 0); },
                            {"'embedding'", "2048", "shard_multiple(3)"});
  EXPECT_THROW(plan_shards(plan_flat_layout(step5::hostile_units()), 1, 0), CheckError);
}

// A bucket is a whole unit with its padding. What is frozen is not waited for; a unit that nothing
// trains is not sent.
TEST(ShardPlan, UnitsAreReducedFromTheLastToTheFirst) {
  const FlatLayout layout = hostile_layout(4);
  const std::vector<GradientBucket> plan = plan_unit_buckets(layout);
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_THAT(plan[0].tensors, ElementsAre(8, 6));     // shift, gain; not the frozen 6
  EXPECT_THAT(plan[1].tensors, ElementsAre(3, 2, 1));  // proj, bias, weight
  EXPECT_THAT(plan[2].tensors, ElementsAre(0));        // wte
  const std::size_t units[] = {4, 1, 0};
  for (std::size_t b = 0; b < plan.size(); ++b) {
    EXPECT_EQ(plan[b].start, layout.units[units[b]].start);
    EXPECT_EQ(plan[b].numel, layout.units[units[b]].numel);
  }
}

// The figures of README.md.
TEST(CostCard, SaysWhatTheLessonSays) {
  TrainOptions options;
  finalize(options);
  const std::int64_t padded[] = {0, 845824, 847872, 854016, 860160, 0, 0, 0, 884736};
  for (const int n : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(step5::state_bytes(options, n, n - 1).total(), 8 * padded[n] + 8 * padded[n] / n);
  }
  EXPECT_EQ(layout_of(options).numel, 842752);
  const Traffic sent = traffic_theory(step5::trainer(), options, {}, 4, 0);
  EXPECT_EQ(sent[CommOp::kReduceScatter].bytes_sent, 3 * 860160);
  EXPECT_EQ(sent[CommOp::kAllGather].bytes_sent, 3 * 860160 + 2 * 5040);
  EXPECT_EQ(sent.bytes_sent(), 5171096);
  options.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_EQ(step5::state_bytes(options, 4, 0).total(), 8 * padded[4]);
}

}  // namespace
}  // namespace ladder
