#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "step7_zero3/sharded_model.hpp"

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
TEST(PeakWholeNumel, IsThatOfTheWorstMoment) {
  const auto untied = [](const std::vector<std::int64_t>& numels, int prefetch) {
    return peak_whole_numel(layout_of(numels), prefetch, /*is_tied=*/false);
  };
  const auto tied = [](const std::vector<std::int64_t>& numels, int prefetch) {
    return peak_whole_numel(layout_of(numels), prefetch, /*is_tied=*/true);
  };
  EXPECT_EQ(untied({10, 4, 6, 5, 3}, 0), 10);
  EXPECT_EQ(untied({10, 4, 6, 5, 3}, 2), 10 + 4 + 6);
  EXPECT_EQ(untied({1, 4, 6, 5, 3}, 1), 6 + 5);    // in the middle
  EXPECT_EQ(untied({1, 4, 6, 5, 30}, 1), 5 + 30);  // at the end
  EXPECT_EQ(untied({10, 4, 6, 5, 3}, 100), 28);    // all of it
  // The embedding is kept in addition to all that follow.
  EXPECT_EQ(tied({10, 4, 6, 5, 3}, 0), 10 + 6);
  EXPECT_EQ(tied({10, 4, 6, 5, 3}, 2), 10 + 4 + 6 + 5);
  EXPECT_EQ(tied({1, 4, 6, 5, 30}, 1), 1 + 5 + 30);
  EXPECT_EQ(tied({10, 4, 6, 5, 3}, 4), 28);
}

}  // namespace
}  // namespace ladder
