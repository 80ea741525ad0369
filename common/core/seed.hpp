// Seeds and a small random generator whose numbers are the same on every machine and compiler.
//
// Two streams must never share a seed by accident: each use derives its own from the run's seed and
// its name. Randomness during a run is a pure function of (seed, stream, step), so there is no
// generator state to save.
#pragma once

#include <cstdint>
#include <string_view>

namespace ladder {

// The seed of a named stream of the run with this seed: derive_seed(1, "model") differs from
// derive_seed(1, "data").
std::uint64_t derive_seed(std::uint64_t seed, std::string_view stream);

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014). Not for cryptography.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();                    // uniform over all 64-bit numbers
  std::int64_t below(std::int64_t limit);  // uniform over [0, limit); limit > 0
  double uniform();                        // uniform over [0, 1), 53 bits

 private:
  std::uint64_t state_;
};

}  // namespace ladder
