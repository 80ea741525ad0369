// Pure: no ranks are needed to plan for many. Also checks the cost card against the lesson.
#include "step5_zero1/shard_plan.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/core/check.hpp"
#include "common/model/build_layers.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/train/cost.hpp"
#include "common/train/start.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step5_zero1/train.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FlatLayout hostile_layout(int world_size) {
  return plan_flat_layout(step5::hostile_units(), shard_multiple(world_size));
}

Unit vector_unit(const std::string& name, std::int64_t numel) {
  return {name, {{name, at::zeros({numel}, at::kMeta).set_requires_grad(true)}}};
}

std::vector<std::int64_t> slice_numels(const ShardPlan& plan) {
  std::vector<std::int64_t> numels;
  for (const UnitSlice& slice : plan.slices) numels.push_back(slice.numel);
  return numels;
}

TEST(ShardPlan, SlicesAreWholeBlocksAndEquallyLong) {
  for (int n = 1; n <= 8; ++n) {
    const std::int64_t row = 1024 * n;  // the least that all ranks can share
    const FlatLayout layout = plan_flat_layout(
        {vector_unit("one", 1), vector_unit("full", row), vector_unit("over", row + 1)}, row);
    for (int rank = 0; rank < n; ++rank) {
      const ShardPlan plan = plan_shards(layout, n, rank);
      EXPECT_THAT(slice_numels(plan), ElementsAre(1024, 1024, 2048));
      EXPECT_EQ(plan.numel, 4096);
      EXPECT_EQ(plan.slices[2].start, 2 * row + 2048 * rank);
      EXPECT_EQ(plan.slices[2].shard_start, 2048);
    }
  }
}

// Unit after unit, the slices of rank 0, 1, … are next to each other; each rank's own are packed.
TEST(ShardPlan, EveryElementHasOneOwner) {
  for (int n = 1; n <= 8; ++n) {
    const FlatLayout layout = hostile_layout(n);
    std::vector<ShardPlan> plans;
    for (int rank = 0; rank < n; ++rank) plans.push_back(plan_shards(layout, n, rank));
    std::int64_t next = 0, next_of_shard = 0;
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      for (const ShardPlan& plan : plans) {
        EXPECT_EQ(plan.slices[u].start, next);
        EXPECT_EQ(plan.slices[u].shard_start, next_of_shard);
        EXPECT_EQ(plan.slices[u].numel % kNormBlock, 0);
        next += plan.slices[u].numel;
      }
      next_of_shard += plans[0].slices[u].numel;
    }
    EXPECT_EQ(next, layout.numel);
    for (const ShardPlan& plan : plans) EXPECT_EQ(plan.numel * n, layout.numel);
  }
}

TEST(ShardPlan, SlicesAreViews) {
  const FlatLayout layout = hostile_layout(3);
  const ShardPlan plan = plan_shards(layout, 3, 2);
  const at::Tensor full = at::arange(layout.numel, at::kFloat);
  const at::Tensor shard = at::cat(plan.slices_of_full(full));
  EXPECT_EQ(shard.numel(), plan.numel);
  const std::vector<at::Tensor> of_full = plan.slices_of_full(full);
  const std::vector<at::Tensor> of_shard = plan.slices_of_shard(shard);
  for (std::size_t u = 0; u < plan.slices.size(); ++u) {
    EXPECT_TRUE(of_full[u].is_alias_of(full) && of_shard[u].is_alias_of(shard));
    EXPECT_TRUE(bits_equal(of_shard[u], of_full[u]));
    EXPECT_TRUE(bits_equal(of_full[u], at::arange(plan.slices[u].numel, at::kFloat) +
                                           static_cast<double>(plan.slices[u].start)));
  }
}

TEST(ShardPlan, RefusesALayoutThatIsNotPaddedForIt) {
  EXPECT_THAT([] { plan_shards(hostile_layout(2), 3, 0); },
              ::testing::ThrowsMessage<CheckError>(::testing::AllOf(
                  HasSubstr("'embedding'"), HasSubstr("2048"), HasSubstr("shard_multiple(3)"))));
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

// Over all ranks: every element that is to be updated, once, with its own decay; nothing else.
TEST(ShardPlan, OwnUpdatesMakeUpThoseOfOneProcess) {
  for (int n = 1; n <= 8; ++n) {
    const FlatLayout layout = hostile_layout(n);
    const at::Tensor wanted = at::zeros({layout.numel}), found = at::zeros({layout.numel});
    for (const UpdateRange& range : plan_updates(layout))
      wanted.narrow(0, range.start, range.numel).fill_(range.has_decay ? 2 : 1);
    for (int rank = 0; rank < n; ++rank) {
      const ShardPlan plan = plan_shards(layout, n, rank);
      // What the plan says of each element of the shard.
      const at::Tensor state = at::zeros({plan.numel});
      const std::vector<at::Tensor> params = plan.slices_of_full(found);
      for (const OptimizerSlice& update : plan_own_updates(plan, params, params)) {
        EXPECT_EQ(update.state_start % kUpdateAlignment, 0);
        EXPECT_EQ(update.params.numel() % kUpdateAlignment, 0);
        at::Tensor(update.params).add_(update.has_decay ? 2 : 1);
        state.narrow(0, update.state_start, update.params.numel()).copy_(update.params);
      }
      EXPECT_TRUE(bits_equal(state, at::cat(params))) << "rank " << rank << " of " << n;
    }
    EXPECT_TRUE(bits_equal(found, wanted)) << n << " ranks";
  }
}

TEST(ShardPlan, BlockSumsAreADoubleEach) {
  for (int n = 1; n <= 8; ++n) {
    const FlatLayout layout = hostile_layout(n);
    const std::int64_t own_bytes = 8 * layout.numel / (1024 * n);
    for (int rank = 0; rank < n; ++rank) {
      Traffic wanted;
      wanted[CommOp::kAllGather] = {1, (n - 1) * own_bytes, n - 1};
      EXPECT_EQ(norm_traffic(layout, n, rank), wanted);
    }
  }
}

// A tied embedding lies in one unit, and is cut and sent once.
TEST(ShardPlan, TiedEmbeddingBelongsToTheFirstUnit) {
  for (const bool is_tied : {true, false}) {
    const Model model = build_layers({.tie_embeddings = is_tied}, /*seed=*/1, {}, at::kMeta);
    const FlatLayout layout = plan_flat_layout(model.units(), shard_multiple(2));
    const FlatUnit& head = layout.units.back();
    EXPECT_EQ(head.name, "head");
    EXPECT_EQ(head.numel, is_tied ? 2048 : 17 * 2048);  // [258, 128] and LayerNorm's two
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
  const Traffic sent = step5::step_traffic(options, 4, 0);
  EXPECT_EQ(sent[CommOp::kReduceScatter].bytes_sent, 3 * 860160);
  EXPECT_EQ(sent[CommOp::kAllGather].bytes_sent, 3 * 860160 + 5040);
  EXPECT_EQ(sent.bytes_sent(), 5166056);
  options.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_EQ(step5::state_bytes(options, 4, 0).total(), 8 * padded[4]);
}

}  // namespace
}  // namespace ladder
