#include "common/comm/traffic.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ladder {
namespace {

TEST(Traffic, AddsAndSubtractsByOperation) {
  Traffic earlier;
  earlier[CommOp::kAllReduce] = {.calls = 1, .bytes_sent = 100, .messages = 2};
  Traffic traffic = earlier;
  traffic[CommOp::kAllReduce].bytes_sent += 20;
  traffic[CommOp::kSend] = {.calls = 3, .bytes_sent = 7, .messages = 3};
  EXPECT_EQ(traffic.bytes_sent(), 127);
  EXPECT_NE(traffic, earlier);

  Traffic added = traffic;
  added -= earlier;
  EXPECT_EQ(added[CommOp::kAllReduce], (OpTraffic{.calls = 0, .bytes_sent = 20, .messages = 0}));
  EXPECT_EQ(added[CommOp::kSend], (OpTraffic{.calls = 3, .bytes_sent = 7, .messages = 3}));
  added += earlier;
  EXPECT_EQ(added, traffic);
}

TEST(Traffic, EveryOperationHasItsName) {
  std::set<std::string> names;
  for (int op = 0; op < kNumCommOps; ++op) names.insert(to_string(static_cast<CommOp>(op)));
  EXPECT_EQ(names, (std::set<std::string>{"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                          "send", "recv", "barrier"}));
}

}  // namespace
}  // namespace ladder
