#include "step4_bucketed_ddp/bucket_plan.hpp"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/unit.hpp"

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

// Every tensor is in one bucket, from the last to the first, and what lies between two tensors of a
// bucket goes with it; each bucket but the last one is full, for what the next one begins with does
// not fit. The capacity is every number of elements up to more than all of them. Units are also
// padded, as for sharding.
TEST(BucketPlan, CoversTheLayoutOnceFromItsEndInFullBuckets) {
  for (const FlatLayout& layout : {plan_flat_layout(funnel()), plan_flat_layout(funnel(), 1024)}) {
    for (std::int64_t capacity = 4; capacity < 5 * layout.numel; capacity += 4) {
      auto next = layout.tensors.rbegin();
      for (const GradientBucket& bucket : plan_buckets(layout, capacity)) {
        const std::int64_t end = next->start + next->padded_numel;
        for (const std::int64_t tensor : bucket.tensors)
          EXPECT_EQ(tensor, layout.tensors.rend() - 1 - next++);
        EXPECT_EQ(bucket.start, (next - 1)->start);
        EXPECT_EQ(bucket.start + bucket.numel, end);
        EXPECT_TRUE(bucket.numel * 4 <= capacity || bucket.tensors.size() == 1);
        if (next != layout.tensors.rend()) {
          EXPECT_GT(4 * (end - next->start), capacity);
        }
      }
      EXPECT_EQ(next, layout.tensors.rend());
    }
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

TEST(BucketPlan, RefusesNoCapacityAndTakesNoTensors) {
  EXPECT_THROW(plan_buckets(plan_flat_layout(funnel()), 0), CheckError);
  EXPECT_TRUE(plan_buckets(plan_flat_layout({}), 1).empty());
}

}  // namespace
}  // namespace ladder
