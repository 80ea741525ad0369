#include "step8_pipeline_ga/runner/next_batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Pairs = std::vector<std::pair<double, double>>;  // documents and microbatches of each step

class NextBatch : public RankTest {
 protected:
  Communicator& comm() { return comm_; }

  // One document per row, in the order of the file.
  BatchStream documents(std::int64_t num_documents, std::int64_t rows) {
    const std::string path = (folder_.path() / "documents.jsonl").string();
    std::ofstream file(path);
    for (std::int64_t i = 0; i < num_documents; ++i) file << "{\"answer\": \"abc\"}\n";
    file.close();
    DataOptions data;
    data.source = path;
    data.rows = Rows::kDocuments;
    data.order = SampleOrder::kSequential;
    data.microbatch_size = rows;
    data.context = 8;
    return {data, data_shard(comm().rank(), comm().size(), Tail::kPad)};
  }
  static TrainOptions wanting(std::int64_t docs_per_step) {
    TrainOptions options;
    options.set<PipelineOptions>().docs_per_step = docs_per_step;
    return options;
  }
  Pairs steps(BatchStream& batches, std::int64_t docs_per_step, int count) {
    Pairs found;
    for (int i = 0; i < count; ++i) {
      const StepBatch batch = next_batch(batches, wanting(docs_per_step), comm());
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
  const std::int64_t n = comm().size();
  BatchStream two = documents(1000 * n, 2), three = documents(1000 * n, 3),
              four = documents(1000 * n, 4);
  EXPECT_THAT(steps(two, 6 * n, 2), ElementsAre(std::pair(6 * n, 3), std::pair(6 * n, 3)));
  EXPECT_THAT(steps(three, 5 * n, 2), ElementsAre(std::pair(6 * n, 2), std::pair(6 * n, 2)));
  EXPECT_THAT(steps(four, 5 * n, 2), ElementsAre(std::pair(8 * n, 2), std::pair(8 * n, 2)));
  EXPECT_THAT(steps(four, 1, 1), ElementsAre(std::pair(4 * n, 1)));
}

TEST_ON_RANKS(NextBatch, AnEpochsLastStepTakesWhatIsLeftAndDropsNothing) {
  const std::int64_t n = comm().size();
  BatchStream batches = documents(11 * n, 2);  // microbatches of 2 2 2 2 2 1
  EXPECT_THAT(steps(batches, 8 * n, 4), ElementsAre(std::pair(8 * n, 4), std::pair(3 * n, 2),  //
                                                    std::pair(8 * n, 4), std::pair(3 * n, 2)));
  EXPECT_EQ(batches.position().epoch, 1);
  EXPECT_EQ(batches.counts().rows, 22);
}

TEST_ON_RANKS(NextBatch, ContinuesFromAnyStep) {
  const std::int64_t n = comm().size();
  BatchStream whole = documents(11 * n, 2), resumed = documents(11 * n, 2);
  for (int i = 0; i < 7; ++i) {
    resumed.seek(whole.position());
    const StepBatch wanted = next_batch(whole, wanting(5 * n), comm());
    const StepBatch found = next_batch(resumed, wanting(5 * n), comm());
    EXPECT_EQ(found.metrics, wanted.metrics);
    for (std::int64_t m = 0; m < wanted.microbatches.size(); ++m)
      EXPECT_EQ(found.microbatches[m].samples, wanted.microbatches[m].samples);
  }
}

// Documents are spread unevenly over the replicas, but all fetch as often.
TEST_ON_RANKS(NextBatch, EveryReplicaFetchesAsManyMicrobatches) {
  const std::string path = (folder_.path() / "ragged.jsonl").string();
  std::ofstream file(path);
  for (int i = 0; i < 200; ++i)
    file << "{\"answer\": \"" << std::string(static_cast<std::size_t>(i * i % 97), 'x') << "\"}\n";
  file.close();
  DataOptions data;
  data.source = path;
  data.microbatch_size = 3;
  data.context = 16;
  BatchStream batches(data, data_shard(comm().rank(), comm().size(), Tail::kDrop));
  for (int step = 0; step < 60; ++step) {
    const StepBatch batch = next_batch(batches, wanting(7), comm());
    const auto own = static_cast<double>(batch.microbatches.size());
    EXPECT_EQ(all_reduce_sum(own, comm()), own * comm().size()) << step;
    EXPECT_TRUE(batch.metrics[0].second >= 7 || batches.is_epoch_over()) << step;
  }
  EXPECT_GT(batches.position().epoch, 0);
}

TEST_ON_RANKS(NextBatch, WithoutTheOptionItIsTheStreamsStep) {
  BatchStream batches = documents(100, 2), same = documents(100, 2);
  const StepBatch batch = next_batch(batches, wanting(0), comm());
  EXPECT_TRUE(batch.metrics.empty());
  EXPECT_EQ(batch.microbatches[0].samples, same.next()[0].samples);
}

// Every step would be a whole epoch, however large: a .txt file is one document.
TEST_ON_RANKS(NextBatch, MoreDocumentsThanThereAreAreRefused) {
  const std::int64_t n = comm().size();
  BatchStream batches = documents(11 * n, 2);
  const auto message = AllOf(HasSubstr(concat("--docs-per-step ", 11 * n + 1)),
                             HasSubstr(concat(11 * n, " document")), HasSubstr("give at most"));
  EXPECT_THAT([&] { next_batch(batches, wanting(11 * n + 1), comm()); },
              ThrowsMessage<UsageError>(message));
  EXPECT_THAT(steps(batches, 11 * n, 1), ElementsAre(std::pair(11 * n, 6)));
}

TEST_ON_RANKS(NextBatch, DataWithoutDocumentsAreRefused) {
  const std::string path = (folder_.path() / "tokens.bin").string();
  std::ofstream(path, std::ios::binary) << std::string(400, '\1');
  DataOptions data;
  data.source = path;
  data.vocab_size = 1000;
  data.context = 8;
  TrainOptions options = wanting(5);
  options.data = data;
  BatchStream batches(data, data_shard(comm().rank(), comm().size(), Tail::kPad));
  EXPECT_THAT([&] { next_batch(batches, options, comm()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("--docs-per-step 5"), HasSubstr(path))));
}

}  // namespace
}  // namespace ladder
