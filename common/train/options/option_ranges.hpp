// The values that options may have. Bounds are far beyond any use; and within them, what is
// computed from several options stays finite.
#pragma once

#include <cstdint>

#include "common/train/options/option_values.hpp"

namespace ladder {

inline constexpr int kMostRanks = 1024;  // also stages and workers
inline constexpr std::int64_t kMostSteps = 1'000'000'000'000;
inline constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostTokenIds = std::int64_t{1} << 32;  // they have 4 bytes
inline constexpr double kMostFloat = 1e30;
inline constexpr Range<double> kPositive = {.least = 0, .most = kMostFloat, .is_above = true};
inline constexpr Range<double> kNotNegative = {0, kMostFloat};
inline constexpr Range<double> kShare = {0, 1};
inline constexpr Range<double> kDecayRate = {.least = 0, .most = 1, .is_below = true};
inline constexpr Range<std::int64_t> kCount = {0, kMostSteps};
inline constexpr Range<std::int64_t> kPositiveCount = {1, kMostSteps};
inline constexpr Range<std::int64_t> kRows = {1, kMostRows};

}  // namespace ladder
