#include "common/core/seed.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

TEST(Seed, StreamsAndSeedsDiffer) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const char* stream : {"model", "data", "sample", ""})
      seeds.insert(derive_seed(seed, stream));
  }
  EXPECT_EQ(seeds.size(), 200u);
  EXPECT_EQ(derive_seed(7, "model"), derive_seed(7, "model"));
}

TEST(Random, IsSplitmix64) {  // the generator's published test vector for seed 1234567
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, BelowCoversItsRangeEvenly) {
  Random random(3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[static_cast<std::size_t>(random.below(7))];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.below(1), 0);
  EXPECT_THROW(random.below(0), CheckError);
}

TEST(Random, UniformStaysBelowOne) {
  Random random(4);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace ladder
