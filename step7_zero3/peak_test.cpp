#include "step7_zero3/peak.hpp"

#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

FlatLayout layout_of(const std::vector<std::int64_t>& numels) {
  FlatLayout layout;
  for (const std::int64_t numel : numels) {
    layout.units.push_back({concat("unit", layout.units.size()), layout.numel, numel});
    layout.numel += numel;
  }
  return layout;
}

// Worked out by hand: the units that are whole at the worst moment, which is one of forward.
TEST(Peak, IsThatOfTheWorstMoment) {
  const FlatLayout layout = layout_of({10, 4, 6, 5, 3});
  EXPECT_EQ(peak_whole_numel(layout, 0, /*is_tied=*/false), 10);
  EXPECT_EQ(peak_whole_numel(layout, 1, /*is_tied=*/false), 10 + 4);
  EXPECT_EQ(peak_whole_numel(layout, 2, /*is_tied=*/false), 10 + 4 + 6);
  EXPECT_EQ(peak_whole_numel(layout, 3, /*is_tied=*/false), 10 + 4 + 6 + 5);
  // The embedding is kept in addition to all that follow.
  EXPECT_EQ(peak_whole_numel(layout, 0, /*is_tied=*/true), 10 + 6);
  EXPECT_EQ(peak_whole_numel(layout, 1, /*is_tied=*/true), 10 + 6 + 5);
  EXPECT_EQ(peak_whole_numel(layout, 2, /*is_tied=*/true), 10 + 4 + 6 + 5);
  // In the middle, without the embedding.
  EXPECT_EQ(peak_whole_numel(layout_of({1, 4, 6, 5, 3}), 1, /*is_tied=*/false), 6 + 5);
  // At the end.
  EXPECT_EQ(peak_whole_numel(layout_of({1, 4, 6, 5, 30}), 1, /*is_tied=*/false), 5 + 30);
  EXPECT_EQ(peak_whole_numel(layout_of({1, 4, 6, 5, 30}), 1, /*is_tied=*/true), 1 + 5 + 30);
}

TEST(Peak, IsTheWholeModelForAPrefetchThatReachesItsEnd) {
  for (const bool is_tied : {false, true}) {
    EXPECT_EQ(peak_whole_numel(layout_of({10, 4, 6, 5, 3}), 4, is_tied), 28);
    EXPECT_EQ(peak_whole_numel(layout_of({10, 4, 6, 5, 3}), 100, is_tied), 28);
  }
}

TEST(Peak, OfOneBlock) {
  EXPECT_EQ(peak_whole_numel(layout_of({10, 4, 3}), 0, /*is_tied=*/false), 10);
  EXPECT_EQ(peak_whole_numel(layout_of({10, 4, 3}), 0, /*is_tied=*/true), 10 + 4);
  EXPECT_EQ(peak_whole_numel(layout_of({10, 4, 3}), 1, /*is_tied=*/true), 10 + 4 + 3);
}

}  // namespace
}  // namespace ladder
