#include "step8_pipeline_ga/objectives/step_shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class StepShard : public RankTest {
 protected:
  Communicator& comm() { return comm_; }

  // In microbatches of two rows, a document in each.
  DataOptions documents(std::int64_t count) {
    std::string lines;
    for (std::int64_t i = 0; i < count; ++i) lines += "{\"answer\": \"abc\"}\n";
    folder_.write("documents.jsonl", lines);
    DataOptions data;
    data.source = folder_.path("documents.jsonl");
    data.rows = Rows::kDocuments;
    data.microbatch_size = 2;
    data.context = 8;
    return data;
  }

  TempFolder folder_;
};

// 11 samples of each replica in microbatches of 2: one is left, and balanced alone it would teach
// nothing. A resumed run leaves out the same one.
TEST_ON_RANKS(StepShard, ATeacherThatBalancesMicrobatchesGetsNoSampleAlone) {
  const Mesh mesh = Mesh::split(comm(), 1);
  TrainOptions options;
  const auto rows_of_epoch = [&](std::int64_t seek_to) {
    BatchStream batches(options.data, step_shard(options, mesh));
    batches.seek({0, seek_to * comm().size()});
    std::vector<std::int64_t> rows;
    do {
      rows.push_back(static_cast<std::int64_t>(batches.next_microbatch().samples.size()));
    } while (!batches.is_epoch_over());
    return rows;
  };
  options.data = documents(11 * comm().size());
  EXPECT_THAT(rows_of_epoch(6), ElementsAre(2, 2, 1));
  options.set<ObjectiveOptions>().kind = ObjectiveKind::kSelfDistillation;
  EXPECT_THAT(rows_of_epoch(6), ElementsAre(2, 2));
  EXPECT_THAT(rows_of_epoch(10), ElementsAre(2, 2, 2, 2, 2));  // of the next epoch
  options.data.microbatch_size = 3;
  EXPECT_THAT(rows_of_epoch(6), ElementsAre(3, 2));
  options.data.microbatch_size = 2;
  options.set<ObjectiveOptions>().distillation.scope = SinkhornScope::kBatch;
  EXPECT_THAT(rows_of_epoch(6), ElementsAre(2, 2, 1));
  options.data.microbatch_size = options.data.num_microbatches = 1;
  if (comm().size() == 1) {
    EXPECT_THAT([&] { step_shard(options, mesh); },
                ThrowsMessage<UsageError>(HasSubstr("--sinkhorn-scope batch: a step has one")));
  } else {
    step_shard(options, mesh);
  }
}

}  // namespace
}  // namespace ladder
