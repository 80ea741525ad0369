#include "common/comm/checking/call_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ladder {
namespace {

using State = RankCalls::State;

Call call(std::int64_t number, const std::string& what, std::int64_t step = 1,
          const std::string& sequence = kAllRanks) {
  return {sequence, number, what, "folder/file.cpp:9", step};
}

TEST(CallTable, NamesWhatEachRankCalls) {
  const Call here = call(2, "barrier");
  const RankCalls as_wanted = {.newest = {call(1, "split"), here}};
  const RankCalls other = {.newest = {call(1, "split"), call(2, "split")}};
  const RankCalls behind = {.newest = {call(1, "split")}};
  EXPECT_EQ(describe_parting(here, {as_wanted, other, behind, as_wanted}),
            "the ranks part at call 2 of all ranks, in optimizer step 1:\n"
            "  ranks 0 and 3: barrier, at folder/file.cpp:9\n"
            "  rank 1: split, at folder/file.cpp:9\n");
}

TEST(CallTable, SaysWhoWaitsForWhom) {
  const RankCalls waits = {
      .state = State::kWaits, .current = call(5, "split"), .waits_for = {1, 2}, .waited_s = "2.03"};
  const RankCalls runs = {.newest = {call(4, "barrier")}}, ended = {.state = State::kEnded};
  EXPECT_EQ(
      describe_waits({waits, runs, ended}),
      "rank 0 waits for ranks 1 and 2 in call 5 of all ranks: split, at folder/file.cpp:9, for "
      "2.03 s\n"
      "rank 1 has called nothing since call 4 of all ranks, barrier, at folder/file.cpp:9: it "
      "computes, is frozen, waits for something else, or has died\n"
      "rank 2 has ended\n");
  EXPECT_EQ(describe_waits({runs, ended}), "") << "no rank waits";
}

TEST(CallTable, HasEqualCallsInOneRowAndEqualRanksInOneColumn) {
  const Call parted = call(3, "barrier", 2);
  const RankCalls waits = {.state = State::kWaits,
                           .current = parted,
                           .waits_for = {1},
                           .newest = {call(1, "split", 0), call(2, "split"), parted}};
  const RankCalls runs = {
      .newest = {call(2, "split"), call(1, "send", 1, "from rank 1 to rank 2 with tag 0")}};
  EXPECT_EQ(side_by_side({waits, runs, waits}),
            "            ranks 0 and 2            rank 1\n"
            "            #1 split  file.cpp:9\n"
            "  step 1    #2 split  file.cpp:9     #2 split  file.cpp:9\n"
            "> step 2    #3 barrier  file.cpp:9\n"
            "  step 1                             #1 send  file.cpp:9\n"
            "            waits in #3 for rank 1   has called nothing since");
}

// No order is that of all ranks.
TEST(CallTable, EndsWhereRanksDisagreeOnTheOrder) {
  const Call a = call(1, "a", 1, "of split 0, ranks {0, 1}");
  const Call b = call(1, "b", 1, "of split 1, ranks {0, 1}");
  const std::string table = side_by_side({{.newest = {a, b}}, {.newest = {b, a}}});
  EXPECT_THAT(table, ::testing::HasSubstr("#1 a, of split 0, ranks {0, 1}"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);  // a header, three rows, the states
}

}  // namespace
}  // namespace ladder
