// For tests: values that differ between ranks, which any rank can compute for any other, and their
// fold.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <vector>

#include "common/core/seed.hpp"

namespace ladder {

inline const std::vector<at::ScalarType> kReducible = {at::kHalf,   at::kBFloat16, at::kFloat,
                                                       at::kDouble, at::kInt,      at::kLong};

// Rank r's values: of either sign and magnitudes from 2^-8 to 2^8, so that a different order of
// summation gives different bits.
inline at::Tensor values_of(int rank, std::int64_t numel, at::ScalarType dtype,
                            std::uint64_t seed = 1) {
  Random random(derive_seed(seed * 1000 + static_cast<std::uint64_t>(rank), "rank values"));
  const at::Tensor values = at::empty({numel}, at::kDouble);
  auto* const data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < numel; ++i) {
    const double magnitude = (1.0 + random.uniform()) * std::exp2(random.below(17) - 8.0);
    data[i] = random.below(2) == 0 ? magnitude : -magnitude;
  }
  return at::isIntegralType(dtype, /*includeBool=*/true) ? (values * 64).to(dtype)
                                                         : values.to(dtype);
}

// The sum of of_rank(begin) … of_rank(end − 1) in the order that every sum over ranks must have, for
// comparison: on the left as many as the largest power of two below their number. It shares nothing
// with tree_sum.hpp.
template <class OfRank>
auto wanted_tree(int begin, int end, const OfRank& of_rank) -> decltype(of_rank(begin)) {
  if (end - begin == 1) return of_rank(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  return wanted_tree(begin, begin + half, of_rank) + wanted_tree(begin + half, end, of_rank);
}

// The sum of all ranks' values, computed in one process.
inline at::Tensor fold_of_all(int size, std::int64_t numel, at::ScalarType dtype,
                              std::uint64_t seed = 1) {
  return wanted_tree(0, size, [&](int rank) { return values_of(rank, numel, dtype, seed); });
}

}  // namespace ladder
