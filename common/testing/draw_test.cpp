// What a judge draws is the same on all ranks, and can be repeated, on 1, 2 and 3 ranks.
#include "common/testing/draw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class DrawTest : public ::testing::Test, protected RankTest {
 protected:
  static std::string ten_numbers(Draw& draw) {
    std::string text;
    for (int i = 0; i < 10; ++i) text += concat(draw.number(0, 1'000'000'000), " ");
    return text;
  }
};

TEST_F(DrawTest, AllRanksDrawTheSameAndAgain) {
  Draw draw(comm_), again(comm_);
  const std::string own = ten_numbers(draw);
  EXPECT_EQ(ten_numbers(again), own);
  for (const std::string& other : all_gather_text(own, comm_)) EXPECT_EQ(other, own);
  for (const std::string& name : all_gather_text(draw.announce("a shape"), comm_))
    EXPECT_EQ(name, again.announce("a shape"));
}

TEST_F(DrawTest, DrawsEachNumberOfARange) {
  Draw draw(comm_);
  std::set<std::int64_t> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(draw.number(-2, 2));
  EXPECT_THAT(drawn, ::testing::ElementsAre(-2, -1, 0, 1, 2));
}

TEST_F(DrawTest, TheNameSaysHowToRepeatIt) {
  EXPECT_THAT(Draw(comm_).announce("7 rows"),
              ::testing::MatchesRegex("drawn at random, 7 rows \\(LADDER_JUDGE_SEED=[0-9]+\\)"));
}

}  // namespace
}  // namespace ladder
