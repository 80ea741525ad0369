#include "step0_single_gpu/simulated_ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

TEST(RowsOfRank, DealsRowsRoundRobin) {
  const at::Tensor tokens = at::arange(12, at::kLong).view({6, 2});
  at::Tensor targets = tokens.clone();
  targets[4].fill_(kIgnoredTarget);
  const Microbatch own = rows_of_rank({tokens, targets, 10}, 1, 3);
  EXPECT_TRUE(own.tokens.equal(at::tensor({2, 3, 8, 9}, at::kLong).view({2, 2})));
  EXPECT_EQ(own.num_targets, 2);
}

TEST(SimulatedRanks, HoldMemoryOfTheirOwnOnlyWhereThereAreSeveral) {
  install_memory_ledger();
  const FlatModel model({{"unit", {{"w", at::ones({40}).set_requires_grad(true)}}}});
  FlatGradients grads(model);
  const std::int64_t before = read_memory().total_live_bytes;
  const SimulatedRanks one(1, Fold::kRanksFirst, grads);
  EXPECT_EQ(read_memory().total_live_bytes, before);
  const SimulatedRanks two(2, Fold::kMicrobatchesFirst, grads);
  EXPECT_EQ(read_memory().total_live_bytes - before, 4 * model.layout().numel);
  EXPECT_EQ(read_memory().other_bytes.at("simulated ranks"), 4 * model.layout().numel);
}

}  // namespace
}  // namespace ladder
