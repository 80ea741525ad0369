// Seeds and a small random generator whose numbers are the same on every machine and compiler.
//
// No two streams may share a seed by accident, so each use derives its own from the run's seed and
// the stream's name. Randomness during a run is a pure function of (seed, stream, step), so a
// checkpoint has no generator state to save.
#pragma once

#include <cstdint>
#include <string_view>

namespace ladder {

// Returns the seed of the named stream in the run with this seed: derive_seed(1, "model") differs
// from derive_seed(1, "data").
std::uint64_t derive_seed(std::uint64_t seed, std::string_view stream);

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014). Not for cryptography.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();                    // uniform over all 64-bit numbers
  std::int64_t below(std::int64_t limit);  // uniform over [0, limit); limit > 0
  double uniform();                        // uniform over [0, 1), 53 bits
  void skip(std::int64_t count);           // so many calls of next(), at once

 private:
  std::uint64_t state_;
};

}  // namespace ladder
