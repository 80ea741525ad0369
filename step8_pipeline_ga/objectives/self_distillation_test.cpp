#include "step8_pipeline_ga/objectives/self_distillation.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

at::Tensor doubles_of(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).view(shape);
}

at::Tensor random_doubles(at::IntArrayRef shape, std::uint64_t seed) {
  Random random(seed);
  const at::Tensor values = at::empty(shape, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.view({-1})[i].fill_(4 * random.uniform() - 2);
  return values;
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance) {
  EXPECT_LE((found.to(at::kDouble) - wanted).abs().max().item<double>(), tolerance)
      << found << wanted;
}

// ---- Balanced assignments

TEST(SelfDistillation, AWholeBatchIsAssigned) {
  const at::Tensor scores = doubles_of({0, 1, 0, 2, 1, 0, 0, 3}, {4, 2});
  expect_near(balanced_assignment(scores, 1),
              doubles_of({.5936, .4064, .3495, .6505, .9152, .0848, .1650, .8350}, {4, 2}), 5e-5);
}

// Samples get other assignments in two microbatches: each is balanced by itself.
TEST(SelfDistillation, MicrobatchesAreAssignedDifferently) {
  const at::Tensor first = doubles_of({0, 1, 0, 2}, {2, 2}),
                   second = doubles_of({1, 0, 0, 3}, {2, 2});
  expect_near(balanced_assignment(first, 1), doubles_of({.6226, .3774, .3776, .6224}, {2, 2}),
              5e-5);
  expect_near(balanced_assignment(second, 1), doubles_of({.9036, .0964, .1465, .8535}, {2, 2}),
              5e-5);
  const at::Tensor whole = balanced_assignment(at::cat({first, second}), 1);
  const at::Tensor halves =
      at::cat({balanced_assignment(first, 1), balanced_assignment(second, 1)});
  const double drift = (whole - halves).abs().mean().item<double>();
  EXPECT_NEAR(drift, 0.0218, 1e-4);  // of shares that add up to 1
}

// Many iterations make the prototypes' sums equal, too.
TEST(SelfDistillation, AssignmentsAreBalancedAndTheTemperatureDividesTheScores) {
  const at::Tensor scores = random_doubles({8, 5}, 7);
  for (const int iterations : {1, 3})
    expect_near(balanced_assignment(scores, 0.5, iterations),
                balanced_assignment(scores / 0.5, 1, iterations), 1e-12);
  const at::Tensor balanced = balanced_assignment(scores, 0.5, 200);
  expect_near(balanced.sum(0), at::full({5}, 8.0 / 5, at::kDouble), 1e-9);
  expect_near(balanced.sum(1), at::ones({8}, at::kDouble), 1e-12);
}

TEST(SelfDistillation, LargeScoresAndLowTemperaturesStayFinite) {
  for (const double scale : {5., 500., 1e6}) {
    const at::Tensor shares = balanced_assignment(random_doubles({6, 3}, 5) * scale, 0.02);
    expect_near(shares.sum(1), at::ones({6}, at::kDouble), 1e-12);
  }
  const at::Tensor nothing = at::zeros({0, 3});
  expect_throws<CheckError>([&] { balanced_assignment(nothing, 1); }, {"[0, 3]"});
}

// ---- Scores, losses, metrics

TEST(SelfDistillation, ARowScoresByItsMeanOutput) {
  const at::Tensor logits = random_doubles({2, 3, 4}, 11);
  const std::vector<std::int64_t> tokens = {5, 6, kIgnoredTarget, 7, 8, 9};  // one is padding
  const at::Tensor targets = at::tensor(tokens, at::kLong).view({2, 3});
  const at::Tensor scores = prototype_scores(logits, targets, 2);
  ASSERT_EQ(scores.sizes(), at::IntArrayRef({2, 2}));
  for (int k = 0; k < 2; ++k) {
    const auto at_position = [&](int row, int t) { return logits[row][t][k].item<double>(); };
    EXPECT_NEAR(scores[0][k].item<double>(), (at_position(0, 0) + at_position(0, 1)) / 2, 1e-12);
    EXPECT_NEAR(scores[1][k].item<double>(),
                (at_position(1, 0) + at_position(1, 1) + at_position(1, 2)) / 3, 1e-12);
  }
  const at::Tensor padding = at::full({2, 3}, kIgnoredTarget, at::kLong);
  expect_near(prototype_scores(logits, padding, 2), at::zeros({2, 2}, at::kDouble), 0);
}

TEST(SelfDistillation, LossSumAndMetricsOfAMicrobatch) {
  const DistillationOptions options = {.prototypes = 3, .student_temperature = 0.5};
  Microbatch m;
  m.targets = at::zeros({4, 2}, at::kLong);
  m.samples = {4, 9};
  m.second_model_output = random_doubles({4, 3}, 2).softmax(1);
  const at::Tensor logits = random_doubles({4, 2, 7}, 1);
  // H(q of the other view, p), both ways: rows 0 and 2 are views of a sample, and so are 1 and 3.
  const at::Tensor p = (logits.mean(1).narrow(1, 0, 3) / 0.5).softmax(1);
  const at::Tensor q_of_other = m.second_model_output.index_select(0, at::tensor({2, 3, 0, 1}));
  const double wanted = -(q_of_other * p.log()).sum().item<double>() / 2;
  MetricSums sums;
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_NEAR(distillation_loss_sum(logits, m, options, &sums).item<double>(), wanted, 1e-12);
  }
  EXPECT_EQ(Microbatches({m, m}).num_samples(), 4);

  const at::Tensor mean = p.mean(0);
  const Metrics metrics = distillation_metrics(sums);
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].first, "assignment_entropy");
  EXPECT_NEAR(metrics[0].second, -(mean * mean.log()).sum().item<double>(), 1e-12);
  EXPECT_EQ(metrics[1].first, "sample_entropy");
  EXPECT_NEAR(metrics[1].second, -(p * p.log()).sum().item<double>() / 4, 1e-12);
}

TEST(SelfDistillation, MetricsTellACollapseFromUse) {
  const auto entropy = [](const MetricSums& sums) { return distillation_metrics(sums)[0].second; };
  EXPECT_NEAR(entropy({0, 5, 5, 5, 5}), std::log(4.0), 1e-12);
  EXPECT_EQ(entropy({0, 20, 0, 0, 0}), 0);
}

// ---- Samples without a target

TEST(SelfDistillation, ASampleWithoutATargetAddsNothing) {
  const DistillationOptions options = {.prototypes = 3};
  const at::Tensor outputs = random_doubles({2 * 4, 5, 6}, 7);
  const at::Tensor targets = at::zeros({2 * 4, 5}, at::kLong);
  const auto score = [&](const std::vector<std::int64_t>& samples) {
    const at::Tensor rows = at::cat({at::tensor(samples), at::tensor(samples) + 4});
    Microbatch m{.targets = targets.index_select(0, rows), .samples = samples};
    const at::Tensor logits = outputs.index_select(0, rows);
    const auto views = teacher_scores(logits, m.targets, options.prototypes).chunk(2);
    m.second_model_output = at::cat({balanced_assignment(views[0], options.teacher_temperature),
                                     balanced_assignment(views[1], options.teacher_temperature)});
    MetricSums sums;
    const double loss = distillation_loss_sum(logits, m, options, &sums).item<double>();
    sums.push_back(loss);
    sums.push_back(static_cast<double>(count_samples(Microbatches({m}))));
    return sums;
  };
  const MetricSums before = score({0, 3});
  EXPECT_EQ(before.back(), 2);
  for (const int view : {0, 4}) targets.narrow(0, view + 1, 2).fill_(kIgnoredTarget);
  const MetricSums sums = score({0, 1, 2, 3});
  ASSERT_EQ(sums.size(), before.size());
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], before[i], 1e-12) << i;
  EXPECT_THAT(score({1, 2}), ::testing::Each(0));
}

// ---- Views

Microbatch rows_of(std::vector<std::int64_t> samples) {
  Microbatch m;
  const auto num_rows = static_cast<std::int64_t>(samples.size());
  m.tokens = at::full({num_rows, 50}, 1000, at::kLong);
  m.targets = at::zeros({num_rows, 50}, at::kLong);
  m.num_targets = num_rows * 50;
  m.samples = std::move(samples);
  return m;
}

TEST(SelfDistillation, ViewsReplaceAShareOfTheTokens) {
  Microbatch m = rows_of({3, 8, 1, 0, 5, 6, 7, 2});
  make_views(m, 1, 0, 0.3, 258);
  EXPECT_EQ(m.tokens.sizes(), at::IntArrayRef({16, 50}));
  EXPECT_EQ(m.targets.sizes(), at::IntArrayRef({16, 50}));
  EXPECT_EQ(m.num_targets, 800);
  const at::Tensor is_noise = m.tokens != 1000;
  EXPECT_NEAR(is_noise.to(at::kDouble).mean().item<double>(), 0.3, 0.06);
  EXPECT_LT(m.tokens.masked_select(is_noise).max().item<std::int64_t>(), 258);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) EXPECT_FALSE(m.tokens[i].equal(m.tokens[j])) << i << ", " << j;
  }
}

// ---- Samples

// `count` documents, in microbatches of two rows.
DataOptions documents(const TempFolder& folder, std::int64_t count) {
  std::string lines;
  for (std::int64_t i = 0; i < count; ++i) lines += "{\"answer\": \"abc\"}\n";
  DataOptions data;
  data.source = folder.write("documents.jsonl", lines);
  data.rows = Rows::kDocuments;
  data.microbatch_size = 2;
  data.context = 8;
  return data;
}

// 11 samples of each replica in microbatches of 2: one is left, and balanced alone it would teach
// nothing. A resumed run leaves out the same one.
TEST(SelfDistillation, NoSampleOfAMicrobatchIsAlone) {
  const TempFolder folder;
  for (const int num_replicas : {1, 2, 4}) {
    TrainOptions options;
    options.data = documents(folder, 11 * num_replicas);
    const auto rows_of_epoch = [&](std::int64_t seek_to) {
      const DataShard last = data_shard(num_replicas - 1, num_replicas, options.data.tail);
      BatchStream batches(options.data, without_lone_samples(last, options, num_replicas));
      batches.seek({0, seek_to * num_replicas});
      std::vector<std::int64_t> rows;
      do {
        rows.push_back(static_cast<std::int64_t>(batches.next_microbatch().samples.size()));
      } while (!batches.is_epoch_over());
      return rows;
    };
    auto& scope = options.set<ObjectiveOptions>().distillation.scope;
    EXPECT_THAT(rows_of_epoch(6), ElementsAre(2, 2));
    EXPECT_THAT(rows_of_epoch(10), ElementsAre(2, 2, 2, 2, 2));  // of the next epoch
    options.data.microbatch_size = 3;
    EXPECT_THAT(rows_of_epoch(6), ElementsAre(3, 2));
    options.data.microbatch_size = 2;
    scope = SinkhornScope::kBatch;
    EXPECT_THAT(rows_of_epoch(6), ElementsAre(2, 2, 1));
    options.data.microbatch_size = options.data.num_microbatches = 1;
    const auto of_one_row = [&] { without_lone_samples({}, options, num_replicas); };
    if (num_replicas > 1) {
      EXPECT_NO_THROW(of_one_row());
    } else {
      expect_throws<UsageError>(of_one_row, {"--sinkhorn-scope batch: a step has one"});
    }
  }
}

}  // namespace
}  // namespace ladder
