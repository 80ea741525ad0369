// The parts that train.cpp puts together: objective, evaluation, and simulated ranks.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/closeness.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder {
namespace {

const ModelOptions kTiny = {
    .vocab_size = 13, .context = 8, .layers = 2, .heads = 3, .channels = 12};

// softmax of (ln 3, 0) is (3/4, 1/4).
TEST(NextToken, IsTheSumOfMinusLogProbabilities) {
  const float ln3 = std::log(3.0f);
  const at::Tensor logits = at::tensor({ln3, 0.0f, ln3, 0.0f, 7.0f, 9.0f}).view({1, 3, 2});
  const Microbatch m{{}, at::tensor({0, 1, -100}, at::kLong).view({1, 3}), 2};
  EXPECT_NEAR(kNextToken.loss_sum(logits, m).item<float>(), std::log(4.0 / 3) + std::log(4.0),
              1e-6);
}

TEST(NextToken, CountsTargetsOverAllMicrobatches) {
  EXPECT_EQ(kNextToken.count(Microbatches({{{}, {}, 30}, {{}, {}, 10}})), 40);
  EXPECT_EQ(kNextToken.count(Microbatches({})), 0);
}

TEST(NextToken, PaddingHasNoLossAndNoGradient) {
  at::manual_seed(2);
  const Model model = build_layers(kTiny, 1);
  const LossSum loss_sum = loss_of(model, kNextToken);
  const at::Tensor tokens = at::randint(13, {2, 8}, at::kLong);
  at::Tensor targets = tokens.roll(-1, 1);
  targets.slice(1, 5).fill_(kIgnoredTarget);
  const at::Tensor padded = loss_sum({tokens, targets, 10});
  const at::Tensor cut = loss_sum({tokens.slice(1, 0, 5), targets.slice(1, 0, 5), 10});
  EXPECT_NEAR(padded.item<double>(), cut.item<double>(), 1e-4);

  const at::Tensor nothing = loss_sum({tokens, at::full_like(targets, kIgnoredTarget), 0});
  nothing.backward();
  EXPECT_EQ(nothing.item<float>(), 0.0f);
  EXPECT_EQ(model.units()[0].tensors[0].tensor.grad().abs().max().item<float>(), 0.0f);
}

TEST(Evaluate, HasOneDenominatorAndLeavesNoGradient) {
  const at::Tensor w = at::ones({}).set_requires_grad(true);
  const LossSum loss_sum = [&](const Microbatch& microbatch) {  // mean losses 1 and 3
    return w * (microbatch.num_targets == 30 ? 1.0 * 30 : 3.0 * 10);
  };
  const Microbatches batches({{{}, {}, 30}, {{}, {}, 10}});
  EXPECT_DOUBLE_EQ(evaluate(loss_sum, batches), 1.5);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({}))));
}

TEST(SimulatedRanks, HoldMemoryOfTheirOwnOnlyWhereThereAreSeveral) {
  install_memory_ledger();
  const FlatModel model({{"unit", {{"w", at::ones({40}).set_requires_grad(true)}}}});
  FlatGradients grads(model);
  const std::int64_t before = read_memory().total_live_bytes;
  const SimulatedRanks one(1, grads);
  EXPECT_EQ(read_memory().total_live_bytes, before);
  for (const auto& [num_ranks, sums] : {std::pair{2, 1}, {3, 1}, {4, 2}, {7, 2}, {8, 3}, {9, 3}}) {
    const SimulatedRanks several(num_ranks, grads);
    EXPECT_EQ(read_memory().total_live_bytes - before, 4 * sums * model.layout().numel);
    EXPECT_EQ(read_memory().other_bytes.at("simulated ranks"), 4 * sums * model.layout().numel);
  }
}

// Rank r's row holds r; its gradient is rank r's values.
TEST(SimulatedRanks, AddUpAsTheTree) {
  constexpr std::int64_t kElements = 40;
  const auto of_rank = [](int rank) { return values_of(rank, kElements, at::kFloat); };
  const at::Tensor w = at::ones({kElements}).set_requires_grad(true);
  const FlatModel model({{"unit", {{"w", w}}}});
  FlatGradients grads(model);
  const LossSum loss_sum = [&](const Microbatch& microbatch) {
    return (model.leaves()[0].tensor * of_rank(microbatch.tokens.item<int>())).sum();
  };
  for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    SCOPED_TRACE(num_ranks);
    const at::Tensor rows = at::arange(num_ranks, at::kLong).view({num_ranks, 1});
    grads.zero();
    const double loss = SimulatedRanks(num_ranks, grads)
                            .accumulate_gradients(loss_sum, Microbatches({{rows, rows, num_ranks}}),
                                                  /*num_targets=*/1);
    EXPECT_TRUE(
        bits_equal(grads.flat().narrow(0, 0, kElements), wanted_tree(0, num_ranks, of_rank)));
    EXPECT_EQ(loss, wanted_tree(0, num_ranks,
                                [&](int rank) { return of_rank(rank).sum().item<double>(); }));
  }
}

}  // namespace
}  // namespace ladder
