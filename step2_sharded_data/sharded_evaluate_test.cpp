#include "step2_sharded_data/sharded_evaluate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/data/batch_stream.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/stop_signal.hpp"

namespace ladder {
namespace {

class ShardedEvaluate : public RankTest {
 protected:
  // Documents of different lengths, three a microbatch.
  Microbatches validation(std::int64_t num_rows) const {
    const DataOptions data{.source = documents_,
                           .validation_source = documents_,
                           .rows = Rows::kDocuments,
                           .microbatch_size = 3,
                           .context = 16,
                           .validation_samples = num_rows};
    return BatchStream(data, whole_data(Tail::kDrop)).validation();
  }

  TempFolder folder_;
  const std::string documents_ = folder_.write("documents.jsonl", [] {
    std::string lines;
    for (std::size_t i = 0; i < 20; ++i)
      lines += concat("{\"context\": \"", i, std::string(i * 7 % 13, 'x'), "\"}\n");
    return lines;
  }());
};

// To the bit: with a ragged last microbatch, with one for each rank, with fewer than ranks.
TEST_ON_RANKS(ShardedEvaluate, IsThatOfOneProcess) {
  const Model model = build_layers(
      {.vocab_size = 258, .context = 16, .layers = 1, .heads = 2, .channels = 16}, /*seed=*/1);
  const LossSum loss_sum = loss_of(model, kNextToken);
  for (const std::int64_t num_rows : {1, 3, 4, 12, 20}) {
    const Microbatches batches = validation(num_rows);
    EXPECT_EQ(batches.size(), (num_rows + 2) / 3);
    const double loss = evaluate(loss_sum, batches, comm_);
    EXPECT_GT(loss, 5.0);
    EXPECT_EQ(loss, evaluate(loss_sum, batches)) << num_rows << " rows";
  }
}

// In double 1e16 + 1 is 1e16: another order of the sum, or a sum per rank, would show.
TEST_ON_RANKS(ShardedEvaluate, AddsUpInTheOrderOfTheMicrobatches) {
  const std::vector<double> sums = {1e16, 1, -1e16, 1, 1e16, -1e16, 1, 1};
  std::vector<Microbatch> list;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    list.push_back({at::full({1}, static_cast<std::int64_t>(i), at::kLong), {}, 1});
  }
  const Microbatches batches(std::move(list));
  const LossSum loss_sum = [&](const Microbatch& m) {
    return at::full({}, sums[static_cast<std::size_t>(m.tokens.item<std::int64_t>())], at::kDouble);
  };
  EXPECT_EQ(evaluate(loss_sum, batches, comm_), 2.0 / 8);
  EXPECT_EQ(evaluate(loss_sum, batches), 2.0 / 8);
}

TEST_ON_RANKS(ShardedEvaluate, EachRankRunsItsOwnMicrobatchesForward) {
  const Microbatches batches = validation(20);
  std::int64_t num_forward = 0;
  const LossSum loss_sum = [&](const Microbatch&) {
    EXPECT_FALSE(at::GradMode::is_enabled());
    ++num_forward;
    return at::ones({});
  };
  evaluate(loss_sum, batches, comm_);
  EXPECT_EQ(num_forward, (batches.size() - rank_ + size_ - 1) / size_);
  EXPECT_TRUE(at::GradMode::is_enabled());
}

// Only the last rank is asked to stop: its forwards end, and all ranks know it.
TEST_ON_RANKS(ShardedEvaluate, AStopOfOneRankEndsIt) {
  int num_forwards = 0;
  const LossSum loss_sum = [&](const Microbatch&) {
    ++num_forwards;
    if (rank_ == size_ - 1) StopSignal::raise();
    return at::ones({});
  };
  EXPECT_EQ(evaluate(loss_sum, validation(20), comm_), kStoppedLoss);
  if (rank_ == size_ - 1) {
    EXPECT_EQ(num_forwards, 1);
  }
  comm_.barrier();
  const StopSignal forgets;
}

TEST_ON_RANKS(ShardedEvaluate, HasNoValueWithoutATarget) {
  const LossSum loss_sum = [](const Microbatch&) { return at::full({}, 0.0); };
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({}), comm_)));
  EXPECT_TRUE(std::isnan(evaluate(loss_sum, Microbatches({{{}, {}, 0}}), comm_)));
}

TEST_ON_RANKS(ShardedEvaluate, SendsOneDoublePerMicrobatchInOneAllReduce) {
  const LossSum loss_sum = [](const Microbatch&) { return at::ones({}); };
  for (const std::int64_t num_rows : {1, 20}) {
    const Microbatches batches = validation(num_rows);
    const Traffic before = comm_.traffic();
    evaluate(loss_sum, batches, comm_);
    Traffic sent = comm_.traffic();
    sent -= before;
    EXPECT_EQ(sent, all_reduce_traffic(batches.size(), 8, size_, rank_)) << num_rows << " rows";
  }
}

}  // namespace
}  // namespace ladder
