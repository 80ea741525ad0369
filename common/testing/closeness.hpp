// For tests: compares two tensors to the bit, or in norm.
//
//   EXPECT_TRUE(bits_equal(actual, expected));
//   EXPECT_TRUE(close_in_norm(actual, expected, 1e-6));
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <string>

namespace ladder {

// True for the same dtype, shape and bytes. So a NaN equals the same NaN, and 0 does not equal -0.
// The failure names the first element that differs and the number of those that do.
::testing::AssertionResult bits_equal(const at::Tensor& actual, const at::Tensor& expected);

// ‖actual − expected‖ / ‖expected‖, in double; the shapes must be equal. 0 if both are zero,
// infinite if only `expected` is, NaN if any element is not finite.
double relative_distance(const at::Tensor& actual, const at::Tensor& expected);

// As many digits as distinguish a number from its neighbors: "1.5", "1.0000000000000018", "nan".
std::string digits(double value);
std::string digits(float value);

// Where to look if two results are equal up to rounding.
inline constexpr const char* kRoundingHint =
    "equal up to rounding: look for additions in another order or type, or a scaling at another "
    "place (before a sum instead of after it, or the other way round) or by a reciprocal";

// True if relative_distance(actual, expected) ≤ tolerance; false for NaN.
::testing::AssertionResult close_in_norm(const at::Tensor& actual, const at::Tensor& expected,
                                         double tolerance);

}  // namespace ladder
