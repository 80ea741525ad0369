#include "step4_bucketed_ddp/bucket_plan.hpp"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

Unit linear(const std::string& name, std::int64_t in, std::int64_t out) {
  return {name,
          {{name + ".weight", at::zeros({out, in}, at::kMeta).set_requires_grad(true)},
           {name + ".bias", at::zeros({out}, at::kMeta).set_requires_grad(true)}}};
}

// Linear 64→32, six 32→32, 32→16, 16→8: 18 tensors, 9080 elements.
std::vector<Unit> funnel() {
  std::vector<Unit> units = {linear("first", 64, 32)};
  for (int i = 0; i < 6; ++i) units.push_back(linear(concat("middle", i), 32, 32));
  units.push_back(linear("narrow", 32, 16));
  units.push_back(linear("last", 16, 8));
  return units;
}

// Elements of each bucket, without padding.
std::vector<std::int64_t> numels(const FlatLayout& layout, std::int64_t capacity_bytes) {
  std::vector<std::int64_t> sums;
  for (const GradientBucket& bucket : plan_buckets(layout, capacity_bytes)) {
    std::int64_t sum = 0;
    for (const std::int64_t i : bucket.tensors) {
      sum += layout.tensors[static_cast<std::size_t>(i)].numel;
    }
    sums.push_back(sum);
  }
  return sums;
}

TEST(BucketPlan, GoesFromTheLastTensorToTheFirst) {
  const FlatLayout layout = plan_flat_layout(funnel());
  EXPECT_EQ(layout.num_parameters, 9080);
  EXPECT_THAT(numels(layout, 1048), ElementsAre(152, 512, 32, 1024, 32, 1024, 32, 1024, 32, 1024,
                                                32, 1024, 32, 1024, 32, 2048));
  EXPECT_EQ(numels(layout, 104).size(), 18u);
  EXPECT_THAT(numels(layout, std::int64_t{25} << 20), ElementsAre(9080));
  const std::vector<GradientBucket> plan = plan_buckets(layout, 1048);
  EXPECT_THAT(plan[0].tensors, ElementsAre(17, 16, 15));
  EXPECT_EQ(plan[0].start, layout.tensors[15].start);
  EXPECT_EQ(plan[0].numel, 16 + 128 + 16);  // a bias of 8 elements lies in a place for 16
}

TEST(BucketPlan, ExactlyFullStillFits) {
  const FlatLayout layout = plan_flat_layout({linear("only", 16, 16)});  // 256 and 16 elements
  EXPECT_THAT(numels(layout, 4 * (256 + 16)), ElementsAre(272));
  EXPECT_THAT(numels(layout, 4 * (256 + 16) - 1), ElementsAre(16, 256));
  EXPECT_THAT(numels(layout, 1), ElementsAre(16, 256));  // each larger than the capacity
}

// Every trainable element is in one bucket, in order, whatever the capacity is; and every bucket
// but the last one is full: the tensor that the next one begins with does not fit.
TEST(BucketPlan, CoversTheLayoutOnceFromItsEndInFullBuckets) {
  const FlatLayout layout = plan_flat_layout(funnel());
  for (std::int64_t capacity = 1; capacity < 5 * layout.numel; capacity += 97) {
    std::int64_t end = layout.numel, next = 17;
    for (const GradientBucket& bucket : plan_buckets(layout, capacity)) {
      EXPECT_EQ(bucket.start + bucket.numel, end);
      end = bucket.start;
      for (const std::int64_t tensor : bucket.tensors) EXPECT_EQ(tensor, next--);
      EXPECT_TRUE(bucket.numel * 4 <= capacity || bucket.tensors.size() == 1);
      if (next < 0) continue;
      const FlatTensor& too_large = layout.tensors[static_cast<std::size_t>(next)];
      EXPECT_GT(4 * (bucket.numel + too_large.padded_numel), capacity);
    }
    EXPECT_EQ(end, 0);
    EXPECT_EQ(next, -1);
  }
}

TEST(BucketPlan, LeavesFrozenTensorsOut) {
  std::vector<Unit> units = {linear("a", 16, 16), linear("b", 16, 16), linear("c", 16, 16)};
  units[1].tensors[0].tensor.set_requires_grad(false);
  const FlatLayout layout = plan_flat_layout(units);
  const std::vector<GradientBucket> plan = plan_buckets(layout, 1 << 20);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_THAT(plan[0].tensors, ElementsAre(5, 4, 3));
  EXPECT_THAT(plan[1].tensors, ElementsAre(1, 0));
  units[1].tensors[1].tensor.set_requires_grad(false);
  EXPECT_EQ(plan_buckets(plan_flat_layout(units), 1 << 20)[0].numel, 272);
}

// Units that are padded for sharding: what lies between two tensors of a bucket goes with it.
TEST(BucketPlan, TakesPaddingBetweenUnitsAlong) {
  const FlatLayout layout = plan_flat_layout({linear("a", 16, 16), linear("b", 16, 16)}, 1024);
  const std::vector<GradientBucket> plan = plan_buckets(layout, 1 << 20);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].start, 0);
  EXPECT_EQ(plan[0].numel, 1024 + 272);
}

TEST(BucketPlan, RefusesNoCapacityAndTakesNoTensors) {
  EXPECT_THROW(plan_buckets(plan_flat_layout(funnel()), 0), CheckError);
  EXPECT_TRUE(plan_buckets(plan_flat_layout({}), 1).empty());
}

}  // namespace
}  // namespace ladder
