#include "common/core/seed.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::uint64_t derive_seed(std::uint64_t seed, std::string_view stream) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a over the name, then mixed with the seed
  for (const char letter : stream) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  }
  return Random(hash ^ Random(seed).next()).next();
}

namespace {

constexpr std::uint64_t kIncrement = 0x9e3779b97f4a7c15u;

}  // namespace

void Random::skip(std::int64_t count) {
  state_ += static_cast<std::uint64_t>(count) * kIncrement;
}

std::uint64_t Random::next() {
  state_ += kIncrement;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::int64_t Random::below(std::int64_t limit) {
  check(limit > 0, "Random::below: the limit must be positive, got ", limit);
  const auto range = static_cast<std::uint64_t>(limit);
  const std::uint64_t reject_below = (0 - range) % range;  // 2^64 mod range: leaves no bias
  std::uint64_t number = next();
  while (number < reject_below) number = next();
  return static_cast<std::int64_t>(number % range);
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

}  // namespace ladder
