#include "step8_pipeline_ga/stage/pipeline_cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

// An embedding, blocks of 10, and a head.
std::vector<std::int64_t> costs(std::size_t num_blocks, std::int64_t head) {
  std::vector<std::int64_t> all(num_blocks + 2, 10);
  all.front() = 0;
  all.back() = head;
  return all;
}

std::vector<std::size_t> sizes(const PipelineCut& cut) {
  std::vector<std::size_t> all;
  for (const auto& chunk : cut.chunks) all.push_back(chunk.size());
  return all;
}

// Compares with every way to cut, for all small numbers.
TEST(PipelineCut, NoOtherCutIsBetter) {
  for (const std::int64_t head : {0, 7, 25, 60}) {
    for (std::size_t num_blocks = 1; num_blocks <= 7; ++num_blocks) {
      const std::vector<std::int64_t> all = costs(num_blocks, head);
      for (std::size_t num_chunks = 1; num_chunks <= num_blocks; ++num_chunks) {
        const PipelineCut cut = cut_layers(all, static_cast<int>(num_chunks));
        std::int64_t worst = 0, next = 0;
        for (const auto& chunk : cut.chunks) {
          std::int64_t cost = 0, num_own_blocks = 0;
          for (const std::int64_t layer : chunk) {
            EXPECT_EQ(layer, next++);
            cost += all[static_cast<std::size_t>(layer)];
            num_own_blocks += layer > 0 && layer <= static_cast<std::int64_t>(num_blocks) ? 1 : 0;
          }
          EXPECT_GE(num_own_blocks, 1);
          worst = std::max(worst, cost);
        }
        EXPECT_EQ(next, static_cast<std::int64_t>(all.size()));
        std::int64_t best = 1'000'000;
        std::vector<bool> ends(num_blocks - 1);  // a chunk ends behind these blocks
        std::fill(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(num_chunks - 1), true);
        do {
          std::int64_t cost = 0, most = 0;
          for (std::size_t block = 0; block < num_blocks; ++block) {
            cost += 10 + (block + 1 == num_blocks ? head : 0);
            most = std::max(most, cost);
            if (block < ends.size() && ends[block]) cost = 0;
          }
          best = std::min(best, most);
        } while (std::prev_permutation(ends.begin(), ends.end()));
        EXPECT_EQ(worst, best) << num_blocks << " blocks, " << num_chunks << " chunks, head "
                               << head;
      }
    }
  }
}

TEST(PipelineCut, AStageHasEveryPthChunk) {
  const PipelineCut cut = cut_layers(costs(6, 1), 2, 2);
  EXPECT_THAT(sizes(cut), ElementsAre(3, 2, 1, 2));
  EXPECT_THAT(cut.layers_of(0), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(cut.layers_of(1), ElementsAre(3, 4, 6, 7));
  EXPECT_NEAR(std::accumulate(cut.shares.begin(), cut.shares.end(), 0.0), 1, 1e-12);
  EXPECT_EQ(to_string(cut),
            "stage 0: embedding, blocks 0-1, block 4 (49% of the forward's arithmetic)\n"
            "stage 1: blocks 2-3, block 5, head (51% of the forward's arithmetic)\n");
}

TEST(PipelineCut, RefusesFewerBlocksThanChunks) {
  expect_throws<UsageError>(
      [] { cut_layers(costs(3, 1), 4, 1); },
      {"--layers 3 is too few for --pipeline-stages 4: each of the 4 stages needs at least one"});
  expect_throws<UsageError>([] { cut_layers(costs(5, 1), 3, 2); },
                            {"--chunks-per-stage 2: each of the 6 chunks"});
  EXPECT_NO_THROW(cut_layers(costs(6, 1), 3, 2));
}

}  // namespace
}  // namespace ladder
