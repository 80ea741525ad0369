#include "common/optim/quanta.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "common/optim/round_to.hpp"

namespace ladder {

int exponent_above(double number) {
  int exponent = 0;
  return std::frexp(number, &exponent) == 0.5 ? exponent - 1 : exponent;
}

float share_of_range(std::int64_t num_microbatches) {
  const int bits = kExactBits - exponent_above(2.0 * static_cast<double>(num_microbatches));
  return std::ldexp(1.0F, std::min(bits, kExactBits - 2));
}

void round_block(float* values, std::int64_t numel, float quantum, float share) {
  const float most = share * quantum;
  int is_beyond = 0;  // a loop without a branch becomes vector instructions
  for (std::int64_t i = 0; i < numel; ++i)
    is_beyond |= static_cast<int>(!(std::abs(values[i]) <= most));
  if (is_beyond == 0) {  // as nearly always
    for (std::int64_t i = 0; i < numel; ++i) values[i] = round_within(quantum, values[i]);
  } else {
    for (std::int64_t i = 0; i < numel; ++i) values[i] = round_to(quantum, most, values[i]);
  }
}

Learned learn_quanta(const std::vector<UnitQuanta>& units, std::int64_t num_microbatches) {
  constexpr int kGrowth = 8;  // of the exponent, where the range was too small
  constexpr int kFloor = 8;   // a block counts as 2^-8 of its unit at least
  bool has_infinity = false;
  for (const UnitQuanta& unit : units) {
    for (const double sum : unit.block_sums) {
      if (std::isnan(sum)) return Learned::kNothing;
      has_infinity = has_infinity || std::isinf(sum);
    }
  }
  const int range = 5 + exponent_above(std::sqrt(static_cast<double>(num_microbatches)));
  bool has_learned = false;
  for (const UnitQuanta& unit : units) {
    const double of_unit = std::accumulate(unit.block_sums.begin(), unit.block_sums.end(), 0.0);
    for (std::size_t i = 0; i < unit.quanta.size(); ++i) {
      const double sum = unit.block_sums[i];
      if (has_infinity) {
        if (std::isinf(sum)) unit.quanta[i] *= std::ldexp(1.0F, kGrowth);
      } else if (of_unit > 0) {
        const double norm = std::sqrt(std::max(sum, std::ldexp(of_unit, -2 * kFloor)));
        const int exponent = exponent_above(norm) + range - kExactBits;
        unit.quanta[i] = std::ldexp(1.0F, std::clamp(exponent, -126, 100));
        has_learned = true;
      }
    }
  }
  if (has_infinity) return Learned::kLargerQuanta;
  return has_learned ? Learned::kNextQuanta : Learned::kNothing;
}

}  // namespace ladder
