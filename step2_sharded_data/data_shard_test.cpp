#include "step2_sharded_data/data_shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using Samples = std::vector<std::int64_t>;

Samples sequential(std::int64_t n) {
  return epoch_order(n, 0, 0, SampleOrder::kSequential);
}

std::vector<Samples> shares_of(const Samples& order, std::int64_t position, int num_ranks,
                               Tail tail) {
  std::vector<Samples> shares;
  for (int rank = 0; rank < num_ranks; ++rank) {
    shares.push_back(samples_of_rank(order, position, rank, num_ranks, tail));
  }
  return shares;
}

// One from each rank in turn, as a step sees them.
Samples dealt_back(const std::vector<Samples>& shares) {
  Samples all;
  for (std::size_t k = 0; k < shares[0].size(); ++k) {
    for (const Samples& share : shares) all.push_back(share.at(k));
  }
  return all;
}

TEST(SamplesOfRank, TakesEveryNth) {
  EXPECT_THAT(samples_of_rank(sequential(20), 0, 0, 2, Tail::kDrop),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18));
  const Samples order = {5, 2, 7, 0, 6, 1, 4, 3};  // the picture in the header
  EXPECT_THAT(samples_of_rank(order, 0, 0, 2, Tail::kDrop), ElementsAre(5, 7, 6, 4));
  EXPECT_THAT(samples_of_rank(order, 0, 1, 2, Tail::kDrop), ElementsAre(2, 0, 1, 3));
}

// The values of PyTorch's DistributedSampler.
TEST(SamplesOfRank, TailsOf103Samples) {
  const auto last_two = [](int rank, int num_ranks, Tail tail, std::size_t num_wanted) {
    const Samples samples = samples_of_rank(sequential(103), 0, rank, num_ranks, tail);
    EXPECT_EQ(samples.size(), num_wanted);
    if (samples.size() < 2) return samples;
    return Samples(samples.end() - 2, samples.end());
  };
  EXPECT_THAT(last_two(0, 2, Tail::kDrop, 51), ElementsAre(98, 100));
  EXPECT_THAT(last_two(1, 2, Tail::kDrop, 51), ElementsAre(99, 101));
  EXPECT_THAT(last_two(0, 2, Tail::kPad, 52), ElementsAre(100, 102));
  EXPECT_THAT(last_two(1, 2, Tail::kPad, 52), ElementsAre(101, 0));
  EXPECT_THAT(last_two(2, 4, Tail::kPad, 26), ElementsAre(98, 102));
  EXPECT_THAT(last_two(3, 4, Tail::kPad, 26), ElementsAre(99, 0));
}

TEST(SamplesOfRank, PaddingWrapsAsOftenAsNeeded) {
  const Samples order = {2, 0, 1};
  EXPECT_THAT(dealt_back(shares_of(order, 0, 8, Tail::kPad)), ElementsAre(2, 0, 1, 2, 0, 1, 2, 0));
  EXPECT_THAT(dealt_back(shares_of(order, 2, 8, Tail::kPad)), ElementsAre(1, 2, 0, 1, 2, 0, 1, 2));
  EXPECT_THAT(shares_of(order, 0, 8, Tail::kDrop), ::testing::Each(IsEmpty()));
}

TEST(SamplesOfRank, RefusesARankThatThereIsNot) {
  for (const int rank : {-1, 2}) {
    EXPECT_THAT([&] { samples_of_rank(sequential(4), 0, rank, 2, Tail::kDrop); },
                ThrowsMessage<CheckError>(
                    AllOf(HasSubstr(concat("no rank ", rank)), HasSubstr("a group of 2"))));
  }
}

// Over many sizes: equally long; disjoint and complete but for the tail; padded from the start.
TEST(SamplesOfRank, SharesAreDisjointCompleteAndEquallyLong) {
  for (const std::int64_t n : {1, 2, 3, 7, 12, 29}) {
    const Samples order = epoch_order(n, 1, 3, SampleOrder::kShuffled);
    for (std::int64_t position = 0; position <= n; ++position) {
      for (const int num_ranks : {1, 2, 3, 4, 8, 31}) {
        for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
          const std::string where = concat(n, " ", position, " ", num_ranks);
          const auto shares = shares_of(order, position, num_ranks, tail);
          for (const Samples& share : shares) EXPECT_EQ(share.size(), shares[0].size()) << where;
          const Samples all = dealt_back(shares);
          const auto num_left = static_cast<std::size_t>(n - position);
          const auto num_over = num_left % shares.size();
          const std::size_t num_missing = num_over == 0 ? 0 : shares.size() - num_over;
          EXPECT_EQ(all.size(), tail == Tail::kDrop ? num_left - num_over : num_left + num_missing)
              << where;
          // What is left, in the order's own order: so no sample twice, and none missing.
          const std::size_t num_own = std::min(all.size(), num_left);
          EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<std::int64_t>(num_own),
                                 order.begin() + position))
              << where;
          for (std::size_t i = num_own; i < all.size(); ++i) {
            EXPECT_EQ(all[i], order[(i - num_left) % order.size()]) << where;
          }
        }
      }
    }
  }
}

TEST(SamplesOfRank, AnotherEpochIsInAnotherOrder) {
  const DataShard shard = data_shard(1, 3, Tail::kDrop);
  EXPECT_EQ(shard.num_readers, 3);
  const auto epoch = [&](std::int64_t number) {
    return shard.select(epoch_order(60, 1, number, SampleOrder::kShuffled), 0);
  };
  EXPECT_EQ(epoch(0), epoch(0));
  EXPECT_NE(epoch(0), epoch(1));
}

// 37 samples, which divide over none of 2, 3 and 4 ranks.
class DataShardStream : public RankTest {
 protected:
  DataOptions options(std::int64_t num_microbatches, Tail tail, Rows rows) const {
    return {.source = rows == Rows::kWindows ? text_ : documents_,
            .tail = tail,
            .rows = rows,
            .microbatch_size = 2,
            .num_microbatches = num_microbatches,
            .context = 16};
  }

  static void expect_same(const Microbatches& found, const Microbatches& wanted) {
    EXPECT_EQ(found.size(), wanted.size());
    if (found.size() != wanted.size()) return;
    for (std::int64_t j = 0; j < found.size(); ++j) {
      EXPECT_TRUE(bits_equal(found[j].tokens, wanted[j].tokens)) << "microbatch " << j;
      EXPECT_TRUE(bits_equal(found[j].targets, wanted[j].targets)) << "microbatch " << j;
      EXPECT_EQ(found[j].num_targets, wanted[j].num_targets) << "microbatch " << j;
    }
  }

  TempFolder folder_;
  const std::string text_ = folder_.write("text.txt", [] {
    std::string text;
    for (int i = 0; text.size() < 37 * 16; ++i) text += concat("line ", i * i, "; ");
    return text.substr(0, 37 * 16);
  }());
  const std::string documents_ = folder_.write("documents.jsonl", [] {
    std::string lines;  // some shorter than a row, some longer
    for (std::size_t i = 0; i < 37; ++i)
      lines += concat("{\"context\": \"", i, std::string(i * 7 % 20, 'x'), "\"}\n");
    return lines;
  }());
};

// What step 1 reads and throws away but for its rows, step 2 does not read: the same rows, to the
// bit, in every epoch, the short last step included.
TEST_ON_RANKS(DataShardStream, IsWhatTheRankTakesOutOfTheGlobalBatch) {
  for (const Rows rows : {Rows::kWindows, Rows::kDocuments}) {
    for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
      for (const std::int64_t num_microbatches : {1, 3}) {
        const DataOptions data = options(num_microbatches, tail, rows);
        BatchStream global = global_batches(data, size_);
        BatchStream own(data, data_shard(rank_, size_, tail));
        EXPECT_EQ(own.steps_per_epoch(), global.steps_per_epoch());
        for (std::int64_t step = 0; step < 3 * own.steps_per_epoch() + 1; ++step) {
          expect_same(own.next(), rows_of_rank(global.next(), rank_, size_));
          EXPECT_EQ(own.position(), global.position());
        }
        EXPECT_EQ(own.position().epoch, 3);
      }
    }
  }
}

TEST_ON_RANKS(DataShardStream, LastStepIsShort) {  // or the test above would prove less
  BatchStream own(options(1, Tail::kDrop, Rows::kWindows), data_shard(rank_, size_, Tail::kDrop));
  const std::int64_t per_rank = own.training_data().num_samples() / size_;
  std::vector<std::int64_t> rows;
  for (std::int64_t step = 0; step < own.steps_per_epoch(); ++step) {
    rows.push_back(own.next()[0].tokens.size(0));
  }
  EXPECT_EQ(rows.back(), per_rank % 2 == 0 ? 2 : 1);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), per_rank);
}

TEST_ON_RANKS(DataShardStream, ReadsOneNthOfTheBytes) {
  const DataOptions data = options(2, Tail::kDrop, Rows::kWindows);
  BatchStream global = global_batches(data, size_);
  BatchStream own(data, data_shard(rank_, size_, data.tail));
  for (int step = 0; step < 3; ++step) {
    global.next();
    own.next();
    EXPECT_GT(own.training_data().bytes_read(), 0);
    EXPECT_EQ(own.training_data().bytes_read() * size_, global.training_data().bytes_read());
  }
}

TEST_ON_RANKS(DataShardStream, TooFewSamplesToDropTheRest) {
  DataOptions few = options(1, Tail::kDrop, Rows::kWindows);
  few.source = folder_.write("few.txt", std::string(3 * 16, 'x'));
  BatchStream dropped(few, data_shard(0, 8, Tail::kDrop));
  EXPECT_THAT([&] { dropped.next(); },
              ThrowsMessage<CheckError>(AllOf(HasSubstr("8 ranks"), HasSubstr("--tail pad"))));
  BatchStream padded(few, data_shard(7, 8, Tail::kPad));
  EXPECT_EQ(padded.next()[0].tokens.size(0), 1);
}

// Data whose sample k is the token k, and what is read of it.
class Numbers : public ::testing::Test {
 protected:
  DataOptions numbered(std::int64_t num_samples) const {
    std::string bytes;
    for (std::int64_t k = 0; k <= num_samples; ++k)
      bytes += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(k)});
    return {.source = folder_.write("numbers.bin", bytes),
            .microbatch_size = 2,
            .context = 1,
            .vocab_size = num_samples + 1};
  }

  // Row by row from all ranks: the samples of one step in the epoch's order.
  static Samples step_of_all(std::vector<BatchStream>& streams) {
    std::vector<Samples> shares;
    for (BatchStream& stream : streams) {
      Samples share;
      for (const Microbatch& microbatch : stream.next()) {
        const auto* const data = microbatch.tokens.const_data_ptr<std::int64_t>();
        share.insert(share.end(), data, data + microbatch.tokens.numel());
      }
      shares.push_back(share);
    }
    return dealt_back(shares);
  }

  TempFolder folder_;
};

std::vector<BatchStream> streams_of(const DataOptions& data, int num_ranks) {
  std::vector<BatchStream> streams;
  for (int rank = 0; rank < num_ranks; ++rank) {
    streams.emplace_back(data, data_shard(rank, num_ranks, data.tail));
  }
  return streams;
}

TEST_F(Numbers, GoOnWithAnotherNumberOfRanksWhereThePositionSays) {
  const DataOptions data = numbered(40);
  const Samples order = epoch_order(40, data.seed, 0, data.order);
  std::vector<BatchStream> two = streams_of(data, 2), three = streams_of(data, 3);
  Samples seen;
  const auto see = [&](const Samples& samples) {
    seen.insert(seen.end(), samples.begin(), samples.end());
  };
  for (int step = 0; step < 4; ++step) see(step_of_all(two));
  EXPECT_EQ(two[0].position(), (DataPosition{0, 16}));
  for (BatchStream& stream : three) stream.seek(two[1].position());
  for (int step = 0; step < 4; ++step) see(step_of_all(three));
  EXPECT_EQ(three[2].position(), (DataPosition{0, 40}));
  EXPECT_EQ(seen, order);  // each sample once, in the order of the epoch
}

// Step s of N ranks sees the samples of step s of one process with N times as many rows.
TEST_F(Numbers, AStepSeesTheSameSamplesWhateverTheNumberOfRanks) {
  DataOptions data = numbered(36);
  std::vector<BatchStream> four = streams_of(data, 4);
  data.microbatch_size = 8;
  std::vector<BatchStream> one = streams_of(data, 1);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(step_of_all(four), step_of_all(one)) << step;
}

}  // namespace
}  // namespace ladder
