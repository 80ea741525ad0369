#include "tests/trace_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using ::testing::HasSubstr;

TEST(TraceReader, FindsWhatIsWrong) {
  const auto slice = [](int lane, std::int64_t begin_ns, std::int64_t end_ns, Json args = {}) {
    return TraceSlice{lane, "x", begin_ns, end_ns, std::move(args)};
  };
  const auto message = [](const char* kind) { return Json{{"kind", kind}, {"from", 0}}; };
  Trace crossing{.ranks = std::vector<RankTrace>(1)};
  crossing.ranks[0].spans = {slice(1, 0, 10), slice(1, 5, 11)};
  EXPECT_THAT(what_is_wrong_with(crossing), HasSubstr("crosses"));
  Trace one_end{.ranks = std::vector<RankTrace>(2), .sends = {{0, 2, 5, 77}}};
  one_end.ranks[0].operations = {slice(2, 5, 9, message("send"))};
  EXPECT_EQ(what_is_wrong_with(one_end), "send 77 on rank 0 has no recv\n");
  Trace early = one_end;
  early.recvs = {{1, 2, 8, 77}};
  early.ranks[1].arrivals = {slice(2, 8, 8), slice(2, 4, 9)};
  EXPECT_EQ(what_is_wrong_with(early), "");
  early.ranks[1].arrivals.erase(early.ranks[1].arrivals.begin());  // as if it ended at its recv
  EXPECT_THAT(what_is_wrong_with(early), HasSubstr("begins before its send"));
  Trace alone{.ranks = std::vector<RankTrace>(2)};
  const Json sum = {{"kind", "all_reduce"}, {"group", "world"}, {"number", 3}, {"bytes", 8}};
  alone.ranks[0].operations = {slice(2, 0, 1, sum)};
  EXPECT_EQ(what_is_wrong_with(alone), "collective 3 of world is missing on a rank\n");
  alone.ranks[1].operations = alone.ranks[0].operations;
  EXPECT_EQ(what_is_wrong_with(alone), "");
  alone.ranks[1].operations[0].args["bytes"] = 4;
  EXPECT_THAT(what_is_wrong_with(alone), HasSubstr("differs between ranks"));
}

}  // namespace
}  // namespace ladder
