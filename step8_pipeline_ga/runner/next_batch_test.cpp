#include "step8_pipeline_ga/runner/next_batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

using Pairs = std::vector<std::pair<double, double>>;  // documents and microbatches of each step

class NextBatch : public RankTest {
 protected:
  // One document per row, in the order of the file.
  BatchStream documents(std::int64_t num_documents, std::int64_t rows) {
    std::string lines;
    for (std::int64_t i = 0; i < num_documents; ++i) lines += "{\"answer\": \"abc\"}\n";
    DataOptions data;
    data.source = folder_.write("documents.jsonl", lines);
    data.rows = Rows::kDocuments;
    data.order = SampleOrder::kSequential;
    data.microbatch_size = rows;
    data.context = 8;
    return {data, data_shard(comm_.rank(), comm_.size(), Tail::kPad)};
  }
  static TrainOptions wanting(std::int64_t docs_per_step) {
    TrainOptions options;
    options.set<PipelineOptions>().docs_per_step = docs_per_step;
    return options;
  }
  Pairs steps(BatchStream& batches, std::int64_t docs_per_step, int count) {
    Pairs found;
    for (int i = 0; i < count; ++i) {
      const StepBatch batch = next_batch(batches, wanting(docs_per_step), comm_);
      EXPECT_EQ(batch.metrics.at(0).first, "documents");
      EXPECT_EQ(batch.metrics.at(1).first, "microbatches");
      EXPECT_EQ(batch.metrics[1].second, batch.microbatches.size());
      found.push_back({batch.metrics[0].second, batch.metrics[1].second});
    }
    return found;
  }

  TempFolder folder_;
};

// n documents in each microbatch, those of all replicas together.
TEST_ON_RANKS(NextBatch, TheMicrobatchThatOvershootsIsKept) {
  const std::int64_t n = comm_.size();
  BatchStream two = documents(1000 * n, 2), three = documents(1000 * n, 3),
              four = documents(1000 * n, 4);
  EXPECT_THAT(steps(two, 6 * n, 2), ElementsAre(std::pair(6 * n, 3), std::pair(6 * n, 3)));
  EXPECT_THAT(steps(three, 5 * n, 2), ElementsAre(std::pair(6 * n, 2), std::pair(6 * n, 2)));
  EXPECT_THAT(steps(four, 5 * n, 2), ElementsAre(std::pair(8 * n, 2), std::pair(8 * n, 2)));
  EXPECT_THAT(steps(four, 1, 1), ElementsAre(std::pair(4 * n, 1)));
}

TEST_ON_RANKS(NextBatch, AnEpochsLastStepTakesWhatIsLeftAndDropsNothing) {
  const std::int64_t n = comm_.size();
  BatchStream batches = documents(11 * n, 2);  // microbatches of 2 2 2 2 2 1
  EXPECT_THAT(steps(batches, 8 * n, 4), ElementsAre(std::pair(8 * n, 4), std::pair(3 * n, 2),  //
                                                    std::pair(8 * n, 4), std::pair(3 * n, 2)));
  EXPECT_EQ(batches.position().epoch, 1);
  EXPECT_EQ(batches.counts().rows, 22);
}

// Documents are spread unevenly over the replicas, but all fetch as often.
TEST_ON_RANKS(NextBatch, EveryReplicaFetchesAsManyMicrobatches) {
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines +=
        concat("{\"answer\": \"", std::string(static_cast<std::size_t>(i * i % 97), 'x'), "\"}\n");
  DataOptions data;
  data.source = folder_.write("ragged.jsonl", lines);
  data.microbatch_size = 3;
  data.context = 16;
  BatchStream batches(data, data_shard(comm_.rank(), comm_.size(), Tail::kDrop));
  for (int step = 0; step < 60; ++step) {
    const StepBatch batch = next_batch(batches, wanting(7), comm_);
    const auto own = static_cast<double>(batch.microbatches.size());
    EXPECT_EQ(all_reduce_sum(own, comm_), own * comm_.size()) << step;
    EXPECT_TRUE(batch.metrics[0].second >= 7 || batches.is_epoch_over()) << step;
  }
  EXPECT_GT(batches.position().epoch, 0);
}

// More documents than there are: every step would be a whole epoch, however large. Or data that do
// not mark any.
TEST_ON_RANKS(NextBatch, DocumentsThatCannotBeCountedAreRefused) {
  const std::int64_t n = comm_.size();
  BatchStream batches = documents(11 * n, 2);
  expect_throws<UsageError>(
      [&] { next_batch(batches, wanting(11 * n + 1), comm_); },
      {concat("--docs-per-step ", 11 * n + 1), concat(11 * n, " document"), "give at most"});
  EXPECT_THAT(steps(batches, 11 * n, 1), ElementsAre(std::pair(11 * n, 6)));

  TrainOptions options = wanting(5);
  options.data.source = folder_.write("tokens.bin", std::string(400, '\1'));
  options.data.vocab_size = 1000;
  options.data.context = 8;
  BatchStream tokens(options.data, data_shard(comm_.rank(), comm_.size(), Tail::kPad));
  expect_throws<UsageError>([&] { next_batch(tokens, options, comm_); },
                            {"--docs-per-step 5", options.data.source});
}

}  // namespace
}  // namespace ladder
