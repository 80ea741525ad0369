#include "common/data/batch_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Samples = std::vector<std::int64_t>;

// Reader r of `num_readers`, as in a step with sharded data: it takes every num_readers-th of the
// remaining samples.
DataShard strided(int r, int num_readers, Tail tail) {
  const auto whole = whole_data(tail, num_readers);
  return {num_readers, [=](std::span<const std::int64_t> order, std::int64_t position) {
            const Samples all = whole.select(order, position);
            Samples mine;
            for (auto i = static_cast<std::size_t>(r); i < all.size();
                 i += static_cast<std::size_t>(num_readers)) {
              mine.push_back(all[i]);
            }
            return mine;
          }};
}

// Data whose sample k is the token k. With a context of 1, the tokens of a batch are its samples.
class BatchStreamTest : public ::testing::Test {
 protected:
  DataOptions options(std::int64_t num_samples, std::int64_t microbatch_size,
                      std::int64_t num_microbatches, SampleOrder order = SampleOrder::kShuffled) {
    std::string bytes;
    for (std::int64_t k = 0; k <= num_samples; ++k)
      bytes += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(k)});
    DataOptions options;
    options.source = folder_.write(concat("samples", num_samples, ".bin"), bytes);
    options.vocab_size = num_samples + 1;
    options.context = 1;
    options.microbatch_size = microbatch_size;
    options.num_microbatches = num_microbatches;
    options.order = order;
    return options;
  }

  TempFolder folder_;
};

Samples samples_of(const Microbatch& microbatch) {
  const auto* data = microbatch.tokens.const_data_ptr<std::int64_t>();
  return {data, data + microbatch.tokens.numel()};
}

Samples samples_of(const Microbatches& batch) {
  Samples samples;
  for (const Microbatch& microbatch : batch) {
    for (const std::int64_t sample : samples_of(microbatch)) samples.push_back(sample);
  }
  return samples;
}

Samples take_epoch(BatchStream& stream) {
  Samples samples = samples_of(stream.next());
  const std::int64_t epoch = stream.position().epoch;
  for (std::int64_t step = 1; step < stream.steps_per_epoch(); ++step) {
    for (const std::int64_t sample : samples_of(stream.next())) samples.push_back(sample);
    EXPECT_EQ(stream.position().epoch, epoch);
  }
  return samples;
}

TEST(WholeData, DropsOrPadsToAMultiple) {
  const Samples order = {4, 0, 3, 1, 2};
  EXPECT_THAT(whole_data(Tail::kDrop).select(order, 0), ElementsAreArray(order));
  EXPECT_THAT(whole_data(Tail::kDrop).select(order, 3), ElementsAre(1, 2));
  EXPECT_THAT(whole_data(Tail::kDrop, 2).select(order, 0), ElementsAre(4, 0, 3, 1));
  EXPECT_THAT(whole_data(Tail::kPad, 2).select(order, 0), ElementsAre(4, 0, 3, 1, 2, 4));
  EXPECT_THAT(whole_data(Tail::kPad, 4).select(order, 3), ElementsAre(1, 2, 4, 0));
  EXPECT_THAT(whole_data(Tail::kPad, 12).select(order, 0),
              ElementsAre(4, 0, 3, 1, 2, 4, 0, 3, 1, 2, 4, 0));
  EXPECT_THAT(whole_data(Tail::kDrop, 12).select(order, 0), IsEmpty());
  EXPECT_THAT(whole_data(Tail::kPad, 4).select(order, 5), IsEmpty());
  EXPECT_THROW(whole_data(Tail::kPad, 0), CheckError);
}

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  for (const std::int64_t size : {0, 1, 2, 3, 17, 1000}) {
    Samples order = epoch_order(size, 1, 0, SampleOrder::kShuffled);
    EXPECT_EQ(order, epoch_order(size, 1, 0, SampleOrder::kShuffled));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, epoch_order(size, 1, 5, SampleOrder::kSequential));
  }
  const Samples order = epoch_order(100, 1, 0, SampleOrder::kShuffled);
  EXPECT_NE(order, epoch_order(100, 1, 1, SampleOrder::kShuffled));
  EXPECT_NE(order, epoch_order(100, 2, 0, SampleOrder::kShuffled));
  EXPECT_NE(order, epoch_order(100, 1, 0, SampleOrder::kSequential));
}

TEST(EpochOrder, PutsEverySampleEverywhereEquallyOften) {
  std::vector<Samples> counts(4, Samples(4));
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    const Samples order = epoch_order(4, 9, epoch, SampleOrder::kShuffled);
    for (std::size_t i = 0; i < 4; ++i) ++counts[i][static_cast<std::size_t>(order[i])];
  }
  for (const Samples& row : counts) {
    for (const std::int64_t count : row) EXPECT_NEAR(count, 1000, 150);
  }
}

TEST_F(BatchStreamTest, SequentialValuesAndAShortLastStep) {
  BatchStream stream(options(9, 2, 3, SampleOrder::kSequential), whole_data(Tail::kDrop));
  EXPECT_EQ(stream.steps_per_epoch(), 2);
  const Microbatches first = stream.next();
  ASSERT_EQ(first.size(), 3);
  EXPECT_THAT(samples_of(first[0]), ElementsAre(0, 1));
  EXPECT_THAT(samples_of(first[2]), ElementsAre(4, 5));
  EXPECT_EQ(first.num_targets(), 6);
  EXPECT_EQ(stream.position(), (DataPosition{0, 6}));
  // Fewer microbatches, fewer rows in the last one, and none from the next epoch.
  const Microbatches last = stream.next();
  ASSERT_EQ(last.size(), 2);
  EXPECT_THAT(samples_of(last[0]), ElementsAre(6, 7));
  EXPECT_THAT(samples_of(last[1]), ElementsAre(8));
  EXPECT_EQ(last.num_targets(), 3);
  EXPECT_EQ(stream.position(), (DataPosition{0, 9}));
  EXPECT_THAT(samples_of(stream.next()), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(stream.position(), (DataPosition{1, 6}));
}

TEST_F(BatchStreamTest, EverySampleOnceAnEpochWhateverTheSizes) {
  for (const std::int64_t num_samples : {1, 2, 7, 12}) {
    for (const std::int64_t rows : {1, 2, 5}) {
      for (const std::int64_t num_microbatches : {1, 3}) {
        BatchStream stream(options(num_samples, rows, num_microbatches), whole_data(Tail::kDrop));
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          EXPECT_EQ(take_epoch(stream), epoch_order(num_samples, 1, epoch, SampleOrder::kShuffled));
          EXPECT_EQ(stream.position(), (DataPosition{epoch, num_samples}));
        }
      }
    }
  }
}

TEST_F(BatchStreamTest, TooFewSamplesForTheReaders) {
  const DataOptions few = options(3, 2, 1, SampleOrder::kSequential);
  BatchStream dropped(few, strided(0, 8, Tail::kDrop));
  expect_throws<CheckError>([&] { dropped.next(); }, {"3 samples, too few for 8 ranks"});
  BatchStream padded(few, strided(7, 8, Tail::kPad));  // the padding wraps more than once
  EXPECT_THAT(samples_of(padded.next()), ElementsAre(1));
  EXPECT_EQ(padded.position(), (DataPosition{0, 3}));
  EXPECT_THAT(samples_of(padded.next()), ElementsAre(1));
  EXPECT_EQ(padded.position(), (DataPosition{1, 3}));
}

TEST_F(BatchStreamTest, GoesOnAfterSeekAsIfNothingHadHappened) {
  for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
    for (const int num_readers : {1, 2, 3}) {
      const DataOptions data = options(29, 2, 2);
      for (int stop = 0; stop < 20; ++stop) {
        BatchStream whole(data, strided(num_readers - 1, num_readers, tail));
        for (int step = 0; step < stop; ++step) whole.next();
        BatchStream resumed(data, strided(num_readers - 1, num_readers, tail));
        resumed.seek(whole.position());
        EXPECT_EQ(resumed.position(), whole.position());
        for (int step = 0; step < 20; ++step) {
          EXPECT_EQ(samples_of(resumed.next()), samples_of(whole.next())) << stop << " " << step;
          EXPECT_EQ(resumed.position(), whole.position());
        }
      }
    }
  }
}

TEST_F(BatchStreamTest, AnotherNumberOfReadersReadsWhatIsLeft) {
  const DataOptions data = options(40, 2, 2);
  const Samples order = epoch_order(40, 1, 0, SampleOrder::kShuffled);
  std::set<std::int64_t> seen;
  const auto read = [&](BatchStream& stream) {
    for (const std::int64_t sample : samples_of(stream.next()))
      EXPECT_TRUE(seen.insert(sample).second);
  };
  DataPosition position;
  for (int r = 0; r < 2; ++r) {  // two steps of two readers: 16 samples
    BatchStream stream(data, strided(r, 2, Tail::kDrop));
    read(stream);
    read(stream);
    position = stream.position();
  }
  EXPECT_EQ(position, (DataPosition{0, 16}));
  EXPECT_EQ(seen, std::set<std::int64_t>(order.begin(), order.begin() + 16));
  for (int r = 0; r < 3; ++r) {  // two steps of three readers: the other 24
    BatchStream stream(data, strided(r, 3, Tail::kDrop));
    stream.seek(position);
    read(stream);
    read(stream);
    EXPECT_EQ(stream.position(), (DataPosition{0, 40}));
  }
  EXPECT_EQ(seen.size(), 40u);
}

// However many readers share a step's microbatches, they read together what one does, in order, also
// in the short last step of an epoch. One that gets fewer than others has one without targets last.
TEST_F(BatchStreamTest, DealsTheMicrobatchesOfAStep) {
  DataOptions data = options(123, 2, 1);  // steps of 48, 48 and 27 samples
  data.deal = Deal::kMicrobatches;
  data.step_microbatches = 24;
  for (const int num_ranks : {1, 5, 8, 30}) {
    for (int r = 0; r < num_ranks; ++r) {
      BatchStream whole(data, dealt_microbatches(0, 1)),
          own(data, dealt_microbatches(r, num_ranks));
      std::int64_t num_rows = 0;
      for (int step = 0; step < 7; ++step) {
        SCOPED_TRACE(concat("rank ", r, " of ", num_ranks, ", step ", step));
        const Microbatches all = whole.next();
        EXPECT_EQ(all.size(), step % 3 == 2 ? 14 : 24);
        if (step == 4) own.next(), own.step_back();
        const Microbatches dealt = own.next();
        EXPECT_EQ(own.position(), whole.position());
        EXPECT_EQ(dealt.size(), (all.size() + num_ranks - 1) / num_ranks);
        for (std::int64_t i = 0; i < dealt.size(); ++i) {
          const std::int64_t number = r + i * num_ranks;
          EXPECT_EQ(dealt[i].samples, number < all.size() ? all[number].samples : Samples());
          EXPECT_EQ(dealt[i].num_targets, std::ssize(dealt[i].samples));
          num_rows += dealt[i].tokens.size(0);
        }
      }
      EXPECT_EQ(own.counts().rows, num_rows);
    }
  }
}

TEST_F(BatchStreamTest, OverfittingStaysWithTheFirstStep) {
  DataOptions data = options(10, 3, 1);
  data.overfit_one_batch = true;
  BatchStream stream(data, whole_data(Tail::kDrop));
  const Samples order = epoch_order(10, 1, 0, SampleOrder::kShuffled);
  for (int step = 0; step < 5; ++step) {
    EXPECT_THAT(samples_of(stream.next()), ElementsAre(order[0], order[1], order[2]));
    EXPECT_EQ(stream.position(), DataPosition{});
  }
}

TEST_F(BatchStreamTest, SeekRefusesWhatTheDataDoesNotHave) {
  BatchStream stream(options(10, 3, 1), whole_data(Tail::kDrop));
  EXPECT_THROW(stream.seek({0, 11}), CheckError);
  EXPECT_THROW(stream.seek({0, -1}), CheckError);
  EXPECT_THROW(stream.seek({-1, 0}), CheckError);
  EXPECT_EQ(stream.position(), DataPosition{});
  stream.seek({3, 10});
  EXPECT_EQ(samples_of(stream.next()).size(), 3u);
  EXPECT_EQ(stream.position(), (DataPosition{4, 3}));
}

TEST_F(BatchStreamTest, ValidationIsTheFirstRowsInMicrobatches) {
  DataOptions data = options(10, 3, 2);
  EXPECT_EQ(BatchStream(data, whole_data(Tail::kDrop)).validation().size(), 0);
  data.validation_source = data.source;
  data.validation_samples = 5;
  const BatchStream stream(data, whole_data(Tail::kDrop));
  const Microbatches batches = stream.validation();
  ASSERT_EQ(batches.size(), 2);
  EXPECT_THAT(samples_of(batches[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(samples_of(batches[1]), ElementsAre(3, 4));
  // A reader for three ranks has three times the rows in a training microbatch, but not in these.
  BatchStream global(data, whole_data(Tail::kDrop, 3));
  EXPECT_EQ(global.next()[0].tokens.size(0), 9);
  EXPECT_EQ(global.validation()[0].tokens.size(0), 3);
  data.validation_samples = 0;
  EXPECT_EQ(samples_of(BatchStream(data, whole_data(Tail::kDrop)).validation()).size(), 10u);
  data.validation_samples = 1000;
  EXPECT_EQ(samples_of(BatchStream(data, whole_data(Tail::kDrop)).validation()).size(), 10u);
}

TEST_F(BatchStreamTest, RefusesSizesAndMixedTokenizers) {
  EXPECT_THROW(BatchStream(options(10, 0, 1), whole_data(Tail::kDrop)), UsageError);
  EXPECT_THROW(BatchStream(options(10, 1, 0), whole_data(Tail::kDrop)), UsageError);
  DataOptions mixed = options(257, 1, 1);
  mixed.validation_source = "corpus";
  expect_throws<UsageError>([&] { BatchStream(mixed, whole_data(Tail::kDrop)); }, {"--val-data"});
}

}  // namespace
}  // namespace ladder
