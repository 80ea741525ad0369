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

// ((x0 + x1) + x2) + …, computed in one process.
inline at::Tensor fold_of_all(int size, std::int64_t numel, at::ScalarType dtype,
                              std::uint64_t seed = 1) {
  at::Tensor sum = values_of(0, numel, dtype, seed);
  for (int r = 1; r < size; ++r) sum += values_of(r, numel, dtype, seed);
  return sum;
}

}  // namespace ladder
