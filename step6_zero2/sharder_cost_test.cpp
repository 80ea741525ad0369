// The formulas, against numbers worked out by hand.
#include "step6_zero2/sharder_cost.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr int kNumRanks = 4;
constexpr std::int64_t kMultiple = kNumRanks * 1024;

// Units of these multiples of 4096 elements; a negative one is frozen.
FlatLayout layout_of_units(const std::vector<std::int64_t>& multiples) {
  std::vector<Unit> units;
  for (const std::int64_t multiple : multiples) {
    const at::Tensor tensor = at::ones({std::abs(multiple) * kMultiple});
    const std::string name = concat("unit", units.size());
    units.push_back({name, {{name + ".weight", tensor.set_requires_grad(multiple > 0)}}});
  }
  return plan_flat_layout(units, kMultiple);
}

TEST(SharderCost, TwoNeighboursThatAreLargestTogetherAreInFlight) {
  const auto in_flight = [](const std::vector<std::int64_t>& multiples, std::int64_t m) {
    return gradient_bytes_in_flight(layout_of_units(multiples), m) / (4 * kMultiple);
  };
  EXPECT_EQ(in_flight({1, 5, 2, 4}, 1), 7);  // 5 and 2; not 5 and 4, which are not neighbors
  EXPECT_EQ(in_flight({1, 5, 2, 4}, 3), 7);
  EXPECT_EQ(in_flight({9, 5, 2, 8}, 1), 14);  // one pass: nothing comes after unit 0
  EXPECT_EQ(in_flight({9, 5, 2, 8}, 2), 17);  // unit 0 is on its way while unit 3 of the next fills
  EXPECT_EQ(in_flight({3, -9, 4}, 1), 7);     // a frozen unit has no gradient
  EXPECT_EQ(in_flight({3}, 1), 3);
  EXPECT_EQ(in_flight({3}, 2), 6);  // with itself
  EXPECT_EQ(in_flight({-3}, 2), 0);
}

TEST(SharderCost, EveryPassSendsAllSlicesButTheOwn) {
  for (int rank = 0; rank < kNumRanks; ++rank) {
    const Traffic traffic = sharder_traffic(layout_of_units({1, -9, 5, 2}), kNumRanks, rank);
    const OpTraffic& op = traffic[CommOp::kReduceScatter];
    EXPECT_EQ(op.calls, 3);
    EXPECT_EQ(op.bytes_sent, 4 * 3 * 8 * 1024);  // 3 of 4 slices of 8 multiples
    EXPECT_EQ(op.messages, 3 * 3);
    EXPECT_EQ(traffic.bytes_sent(), op.bytes_sent);
  }
  EXPECT_EQ(sharder_traffic(layout_of_units({1, 5}), 1, 0).bytes_sent(), 0);
}

}  // namespace
}  // namespace ladder
