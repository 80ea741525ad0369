// How far apart two tensors are, for tests: to the bit, or in norm.
//
//   EXPECT_TRUE(bits_equal(actual, expected));
//   EXPECT_TRUE(close_in_norm(actual, expected, 1e-6));
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace ladder {

// Same dtype, same shape, same bytes. So NaN equals the same NaN, and 0 does not equal -0. A
// failure names the first element that differs and how many do.
::testing::AssertionResult bits_equal(const at::Tensor& actual, const at::Tensor& expected);

// ‖actual − expected‖ / ‖expected‖, in double; the shapes must agree. 0 if both are zero, infinite
// if only `expected` is, NaN if something in them is not finite.
double relative_distance(const at::Tensor& actual, const at::Tensor& expected);

// relative_distance(actual, expected) ≤ tolerance; NaN is not.
::testing::AssertionResult close_in_norm(const at::Tensor& actual, const at::Tensor& expected,
                                         double tolerance);

}  // namespace ladder
