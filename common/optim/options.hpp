// How parameters are updated, and in which order gradients are added up.
#pragma once

#include <cstdint>

namespace ladder {

enum class OptimizerKind { kAdamW, kSgd };

// What remembers the part of a 16-bit parameter that 16 bits cannot hold: a master in fp32; or
// nothing, and the updated value is rounded to the nearest 16-bit number, or stochastically: up or
// down at random, so that it is right on average (rounding.hpp). Means nothing for fp32.
enum class Masters { kFp32, kNone, kStochastic };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  Masters masters = Masters::kFp32;
  std::uint64_t seed = 1;  // of stochastic rounding
};

// So many elements at a time are widened for an update, in fp32 scratch: 16-bit gradients, and 16-bit
// parameters without masters.
inline constexpr std::int64_t kWidePiece = 1 << 20;

// Of fp16 (loss_scaler.hpp).
struct LossScaleOptions {
  double initial = 65536;      // a power of two, 1 or more
  std::int64_t window = 1000;  // good steps in a row after which the scale is doubled
};

// As a tree over the ranks, or in any order with the same bits (exact_sums.hpp).
enum class SumMode { kOrdered, kExact };

}  // namespace ladder
