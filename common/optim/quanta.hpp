// The arithmetic of exact sums (exact_sums.hpp): round first, then add.
//
// Floating-point addition rounds, so a sum depends on its order, and the order on the number of ranks.
// But if all summands are multiples of one power of two, the quantum, and no partial sum exceeds
// 2²⁴ quanta, the range, then every fp32 addition is exact, and there is no order any more (the first
// bin of Demmel and Nguyen's reproducible sums). Each block of kNormBlock elements has a quantum of
// its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ladder {

inline constexpr int kExactBits = 24;  // fp32 holds each multiple of a quantum up to 2^24 of them

// The smallest e with 2ᵉ ≥ number > 0.
int exponent_above(double number);

// How many quanta a summand may have, a power of two: as many as possible so that two of them in each
// microbatch, the two uses of a tied weight, fit into the range together. At most 2²², which is how
// far round_to.hpp can round.
float share_of_range(std::int64_t num_microbatches);

// Rounds some values of a block: each to the nearest multiple of the quantum, halves to an even one.
// A finite value of more quanta than its share, positive or negative, becomes +∞, which wins in a
// sum over all finite numbers; one that is itself infinite, or not a number, becomes NaN, which wins
// over +∞. Each value is judged by itself.
void round_block(float* values, std::int64_t numel, float quantum, float share);

// A unit of the model after a step.
struct UnitQuanta {
  std::span<const double> block_sums;  // of the summed gradient's squares, over all ranks
  std::span<float> quanta;             // no more than sums: the last blocks may be padding
};

enum class Learned {
  kNothing,       // all quanta stay
  kLargerQuanta,  // for the same step, which must be computed again
  kNextQuanta,    // for the next step
};

// Sets the quanta by a step's sums, the same numbers on every rank.
//
//   one is not a number   no quantum helps: nothing is learned
//   some are infinite     the quanta of these blocks grow by 2⁸, all others stay
//   else                  norm    = the root of the block's sum, at least 2⁻⁸ of the whole unit's
//                         range   = 32 · √M · norm, where √M and the norm are rounded up to powers
//                                   of two, and M is the number of microbatches
//                         quantum = range / 2²⁴, at least 2⁻¹²⁶ and at most 2¹⁰⁰
//
// A unit whose gradient is zero keeps its quanta; if all are, nothing is learned.
Learned learn_quanta(const std::vector<UnitQuanta>& units, std::int64_t num_microbatches);

}  // namespace ladder
