#include "step0_single_gpu/simulated_ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>

#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

constexpr ModelOptions kModel{
    .vocab_size = 258, .context = 16, .layers = 1, .heads = 2, .channels = 16};

// Batches of ragged documents, 1 to 17 tokens long.
class SimulatedRanksTest : public ::testing::Test {
 protected:
  SimulatedRanksTest() {
    std::string lines;
    for (int i = 0; i < 60; ++i)
      lines += "{\"answer\": \"" + std::string(static_cast<std::size_t>(7 * i % 17), 'a') + "\"}\n";
    source_ = folder_.write("documents.jsonl", lines);
  }
  Microbatches batch(std::int64_t num_microbatches, std::int64_t num_ranks) const {
    const DataOptions options{.source = source_,
                              .rows = Rows::kDocuments,
                              .microbatch_size = 2,
                              .num_microbatches = num_microbatches,
                              .context = 16};
    return global_batches(options, num_ranks).next();
  }

 private:
  TempFolder folder_;
  std::string source_;
};

struct TinyModel {
  Model model = build_layers(kModel, 1);
  FlatModel flat{model.units()};
  FlatGradients grads{flat};
  LossSum loss_sum = loss_of(model, kNextToken);
};

// The gradient of each rank's microbatches alone: gradients[rank][microbatch].
std::vector<std::vector<at::Tensor>> separate_gradients(TinyModel& tiny, const Microbatches& global,
                                                        std::int64_t num_ranks,
                                                        double num_targets) {
  std::vector<std::vector<at::Tensor>> gradients(static_cast<std::size_t>(num_ranks));
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    for (const Microbatch& microbatch : global) {
      tiny.grads.zero();
      accumulate_gradients(tiny.loss_sum, Microbatches({rows_of_rank(microbatch, rank, num_ranks)}),
                           num_targets);
      gradients[static_cast<std::size_t>(rank)].push_back(tiny.grads.flat().clone());
    }
  }
  return gradients;
}

TEST(RowsOfRank, DealsRowsRoundRobin) {
  const at::Tensor tokens = at::arange(12, at::kLong).view({6, 2});
  at::Tensor targets = tokens.clone();
  targets[4].fill_(kIgnoredTarget);
  const Microbatch own = rows_of_rank({tokens, targets, 10}, 1, 3);
  EXPECT_TRUE(own.tokens.equal(at::tensor({2, 3, 8, 9}, at::kLong).view({2, 2})));
  EXPECT_EQ(own.num_targets, 2);
}

TEST_F(SimulatedRanksTest, FoldInTheirOrder) {
  for (const std::int64_t num_ranks : {1, 2, 3, 4}) {
    for (const std::int64_t m : {1, 3}) {
      for (const Fold fold : {Fold::kMicrobatchesFirst, Fold::kRanksFirst}) {
        TinyModel tiny;
        SimulatedRanks ranks(num_ranks, fold, tiny.grads);
        const Microbatches global = batch(m, num_ranks);
        ASSERT_EQ(global.size(), m);
        ASSERT_EQ(global[0].tokens.size(0), 2 * num_ranks);
        const auto num_targets = static_cast<double>(global.num_targets());
        const auto parts = separate_gradients(tiny, global, num_ranks, num_targets);

        at::Tensor wanted = at::zeros_like(tiny.grads.flat());
        const std::int64_t outer = fold == Fold::kRanksFirst ? m : num_ranks;
        const std::int64_t inner = fold == Fold::kRanksFirst ? num_ranks : m;
        for (std::int64_t i = 0; i < outer; ++i) {
          at::Tensor sum = at::zeros_like(wanted);
          for (std::int64_t j = 0; j < inner; ++j) {
            const auto [rank, microbatch] =
                fold == Fold::kRanksFirst ? std::pair(j, i) : std::pair(i, j);
            sum += parts[static_cast<std::size_t>(rank)][static_cast<std::size_t>(microbatch)];
          }
          wanted += sum;
        }
        tiny.grads.zero();
        ranks.accumulate_gradients(tiny.loss_sum, global, num_targets);
        EXPECT_TRUE(tiny.grads.flat().equal(wanted))
            << num_ranks << " ranks, " << m << " microbatches";
      }
    }
  }
}

TEST_F(SimulatedRanksTest, OrdersReallyDiffer) {  // or the test above would prove nothing
  at::Tensor gradients[2];
  for (const Fold fold : {Fold::kMicrobatchesFirst, Fold::kRanksFirst}) {
    TinyModel tiny;
    SimulatedRanks ranks(3, fold, tiny.grads);
    const Microbatches global = batch(3, 3);
    ranks.accumulate_gradients(tiny.loss_sum, global, static_cast<double>(global.num_targets()));
    gradients[fold == Fold::kRanksFirst ? 1 : 0] = tiny.grads.flat().clone();
  }
  const double differing = gradients[0].ne(gradients[1]).to(at::kDouble).mean().item<double>();
  EXPECT_GT(differing, 0.1);
  EXPECT_TRUE(gradients[0].allclose(gradients[1], 1e-4, 1e-6));
}

TEST(SimulatedRanks, HoldMemoryOfTheirOwnOnlyWhereThereAreSeveral) {
  install_memory_ledger();
  TinyModel tiny;
  const std::int64_t before = read_memory().total_live_bytes;
  const SimulatedRanks one(1, Fold::kRanksFirst, tiny.grads);
  EXPECT_EQ(read_memory().total_live_bytes, before);
  const SimulatedRanks two(2, Fold::kMicrobatchesFirst, tiny.grads);
  EXPECT_EQ(read_memory().total_live_bytes - before, 4 * tiny.flat.layout().numel);
  EXPECT_EQ(read_memory().other_bytes.at("simulated ranks"), 4 * tiny.flat.layout().numel);
}

}  // namespace
}  // namespace ladder
