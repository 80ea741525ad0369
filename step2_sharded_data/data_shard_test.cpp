#include "step2_sharded_data/data_shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder {
namespace {

class DataShardTest : public RankTest {
 protected:
  // Sample k is the token k.
  DataOptions numbered(std::int64_t num_samples) const {
    std::string bytes;
    for (std::int64_t k = 0; k <= num_samples; ++k)
      bytes += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(k)});
    return {.source = folder_.write("numbers.bin", bytes),
            .microbatch_size = 2,
            .context = 1,
            .vocab_size = num_samples + 1};
  }

  TempFolder folder_;
};

TEST_ON_RANKS(DataShardTest, ReadsOneNthOfTheBytes) {
  const DataOptions data = numbered(37);
  BatchStream global = global_batches(data, size_);
  BatchStream own(data, data_shard(rank_, size_, data.tail));
  for (int step = 0; step < 3; ++step) {
    global.next();
    own.next();
    EXPECT_GT(own.training_data().bytes_read(), 0);
    EXPECT_EQ(own.training_data().bytes_read() * size_, global.training_data().bytes_read());
  }
}

TEST_ON_RANKS(DataShardTest, TooFewSamplesToDropTheRest) {
  BatchStream dropped(numbered(3), data_shard(0, 8, Tail::kDrop));
  EXPECT_THAT([&] { dropped.next(); },
              ::testing::ThrowsMessage<CheckError>(::testing::AllOf(
                  ::testing::HasSubstr("8 ranks"), ::testing::HasSubstr("--tail pad"))));
  DataOptions padded = numbered(3);
  padded.tail = Tail::kPad;
  BatchStream batches(padded, data_shard(7, 8, Tail::kPad));
  EXPECT_EQ(batches.next()[0].tokens.size(0), 1);
}

// Appends the samples of a step of all ranks to `seen`, one from each rank in turn.
void see_step(std::vector<BatchStream>& ranks, std::vector<std::int64_t>& seen) {
  std::vector<Microbatches> batches;
  for (BatchStream& rank : ranks) batches.push_back(rank.next());
  for (std::int64_t row = 0; row < batches[0][0].tokens.size(0); ++row) {
    for (const Microbatches& batch : batches)
      seen.push_back(batch[0].tokens[row].item<std::int64_t>());
  }
}

TEST_ON_RANKS(DataShardTest, GoesOnWithAnotherNumberOfRanksWhereThePositionSays) {
  const DataOptions data = numbered(40);
  const auto streams_of = [&](int num_ranks) {
    std::vector<BatchStream> streams;
    for (int rank = 0; rank < num_ranks; ++rank)
      streams.emplace_back(data, data_shard(rank, num_ranks, data.tail));
    return streams;
  };
  std::vector<BatchStream> two = streams_of(2), three = streams_of(3);
  std::vector<std::int64_t> seen;
  for (int step = 0; step < 4; ++step) see_step(two, seen);
  EXPECT_EQ(two[0].position(), (DataPosition{0, 16}));
  for (BatchStream& stream : three) stream.seek(two[1].position());
  for (int step = 0; step < 4; ++step) see_step(three, seen);
  EXPECT_EQ(three[2].position(), (DataPosition{0, 40}));
  EXPECT_EQ(seen, epoch_order(40, data.seed, 0, data.order));  // each sample once, in order
}

}  // namespace
}  // namespace ladder
