#include "step2_sharded_data/data_shard.hpp"

#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"

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

TEST_ON_RANKS(DataShardTest, TooFewSamplesToDropTheRest) {
  BatchStream dropped(numbered(3), data_shard(0, 8, Tail::kDrop));
  expect_throws<CheckError>([&] { dropped.next(); }, {"8 ranks", "--tail pad"});
  DataOptions padded = numbered(3);
  padded.tail = Tail::kPad;
  BatchStream batches(padded, data_shard(7, 8, Tail::kPad));
  EXPECT_EQ(batches.next()[0].tokens.size(0), 1);
}

}  // namespace
}  // namespace ladder
