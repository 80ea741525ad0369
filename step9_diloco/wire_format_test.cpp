#include "step9_diloco/wire_format.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/BFloat16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::IsNan;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

using Floats = std::vector<float>;

at::Tensor decoded(const at::Tensor& values, WireFormat format) {
  const at::Tensor result = at::full_like(values, 12345);
  decode(encode(values, format), format, result);
  return result;
}
Floats floats(const at::Tensor& values) {
  const float* const data = values.const_data_ptr<float>();
  return {data, data + values.numel()};
}
Floats decoded(const Floats& values, WireFormat format) {
  return floats(decoded(at::tensor(values), format));
}

// Values whose magnitude changes from block to block, and within a block.
at::Tensor uneven_values(std::int64_t numel, std::uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor block = at::arange(numel).div(256, "floor");
  return at::randn({numel}) * at::pow(10, at::rand({numel}) * 4 - 4) * at::pow(10, block % 7 - 3);
}

TEST(WireFormat, NoTensorCostsMoreThanInFp32) {
  for (std::int64_t n = 0; n <= 1000; ++n) {
    for (const WireFormat format : kWireFormats) {
      EXPECT_EQ(encode(at::zeros({n}), format).numel(), encoded_bytes(n, format)) << n;
      EXPECT_LE(encoded_bytes(n, format), 4 * n);
    }
    EXPECT_EQ(encoded_bytes(n, WireFormat::kFp32), 4 * n);
    EXPECT_EQ(encoded_bytes(n, WireFormat::kBf16), 2 * n);
  }
  const auto in_int8 = [](std::int64_t n) { return encoded_bytes(n, WireFormat::kInt8); };
  EXPECT_EQ(in_int8(1), 3);
  EXPECT_EQ(in_int8(256), 258);
  EXPECT_EQ(in_int8(257), 261);
  EXPECT_EQ(in_int8(1'000'000), 1'007'814);  // 3907 blocks
}

TEST(WireFormat, Fp32KeepsEveryBit) {
  const Floats values = {1, -0.0f, 1e-45f, kInf, -kInf, kMax, 0.1f};
  EXPECT_THAT(decoded(values, WireFormat::kFp32), ElementsAreArray(values));
  EXPECT_TRUE(std::signbit(decoded(values, WireFormat::kFp32)[1]));
  EXPECT_THAT(decoded({kNan}, WireFormat::kFp32), Each(IsNan()));
}

// Next to 1 the numbers of bf16 are 1/128 apart: 1 + k/256 is halfway for an odd k.
TEST(WireFormat, Bf16RoundsHalvesToTheEvenNeighbor) {
  const auto one_and = [](int k, float more = 0) { return 1 + static_cast<float>(k) / 256 + more; };
  EXPECT_THAT(decoded({one_and(1), one_and(3), one_and(1, 1e-6f), one_and(3, -1e-6f), -one_and(1)},
                      WireFormat::kBf16),
              ElementsAre(1, one_and(4), one_and(2), one_and(2), -1));
}

// The block's largest magnitude is 127, so that a step is 1.
TEST(WireFormat, Int8RoundsHalvesToTheEvenNeighbor) {
  EXPECT_THAT(decoded({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.51f, 1.99f, -2.51f, 126.4f, 1e-20f},
                      WireFormat::kInt8),
              ElementsAre(127, 0, 2, 2, 0, -2, 1, 2, -3, 126, 0));
  EXPECT_THAT(decoded({2.5f, -127, 3.5f}, WireFormat::kInt8), ElementsAre(2, -127, 4));
}

TEST(WireFormat, EveryLengthKeepsItsBound) {
  for (std::int64_t n = 1; n <= 1000; ++n) {
    const at::Tensor values = uneven_values(n, static_cast<std::uint64_t>(n));
    const at::Tensor from_int8 = decoded(values, WireFormat::kInt8);
    for (std::int64_t start = 0; start < n; start += 256) {
      const auto block = [&](const at::Tensor& all) {
        return all.slice(0, start, start + 256).to(at::kDouble);
      };
      const double largest = block(values).abs().max().item<double>();
      const double error = (block(from_int8) - block(values)).abs().max().item<double>();
      EXPECT_LE(error, largest / 253) << n;
    }
    const at::Tensor exact = values.to(at::kDouble);
    const at::Tensor error = (decoded(values, WireFormat::kBf16).to(at::kDouble) - exact).abs();
    EXPECT_TRUE(error.le(exact.abs() / 256).all().item<bool>()) << n;
    EXPECT_TRUE(decoded(values, WireFormat::kFp32).equal(values)) << n;
  }
}

// Step 9's lesson quotes these: the norm of the error, of values with a normal distribution, in
// relation to the norm of the values.
TEST(WireFormat, NormalValuesAreOffByAFractionOfAPercent) {
  at::manual_seed(1);
  const at::Tensor values = at::randn({256 * 1000}) * 1e-3;
  const auto error = [&](WireFormat format) {
    return ((decoded(values, format) - values).norm() / values.norm()).item<double>();
  };
  EXPECT_EQ(error(WireFormat::kFp32), 0);
  EXPECT_NEAR(error(WireFormat::kBf16), 0.0017, 0.0001);
  EXPECT_NEAR(error(WireFormat::kInt8), 0.0065, 0.0005);
}

// The largest value decodes to 127 steps exactly, so that the scale comes out the same again.
TEST(WireFormat, ValuesDecodedOnceAreEncodedWithoutAnotherError) {
  for (const WireFormat format : kWireFormats) {
    for (std::int64_t n = 1; n <= 1000; ++n) {
      const at::Tensor once = decoded(uneven_values(n, 7), format);
      EXPECT_TRUE(decoded(once, format).equal(once)) << n;
    }
    at::manual_seed(1);
    const at::Tensor many = at::randn({2000, 256}) * at::pow(2, at::rand({2000, 1}) * 200 - 100);
    const at::Tensor once = decoded(many.view({-1}), format);
    EXPECT_TRUE(encode(once, format).equal(encode(many.view({-1}), format)));
  }
}

TEST(WireFormat, TinyValuesDecodeToZerosInInt8AndLoseMoreInBf16) {
  for (const Floats& values : {Floats(300, 0), Floats(3, -0.0f), Floats{1e-38f, -1e-45f, 1.4e-36f}})
    EXPECT_THAT(decoded(values, WireFormat::kInt8), Each(0));
  EXPECT_THAT(decoded({1.6e-36f, -1.6e-36f, 0.8e-36f}, WireFormat::kInt8),
              ElementsAre(FloatNear(1.6e-36f, 1.6e-36f / 253), FloatNear(-1.6e-36f, 1.6e-36f / 253),
                          FloatNear(0.8e-36f, 1.6e-36f / 253)));
  for (const float value : {1e-38f, -1e-40f, 1e-45f, 0.0f})
    EXPECT_NEAR(decoded({value}, WireFormat::kBf16)[0], value, std::ldexp(1, -134)) << value;
}

TEST(WireFormat, Bf16KeepsWhatIsNotFinite) {
  const Floats values = {1, kNan, kInf, -kInf, 3.4e38f, -3.4e38f, 3.38e38f};
  const Floats result = decoded(values, WireFormat::kBf16);
  EXPECT_THAT(result[1], IsNan());
  EXPECT_THAT((Floats{result[0], result[2], result[3], result[4], result[5]}),
              ElementsAre(1, kInf, -kInf, kInf, -kInf));
  EXPECT_TRUE(std::isfinite(result[6]));
}

TEST(WireFormat, Int8TurnsABlockWithAValueThatIsNotFiniteIntoNan) {
  for (const std::int64_t place : {0, 255, 256, 511, 512, 599}) {
    for (const float value : {kNan, -kNan, kInf, -kInf}) {
      const at::Tensor values = at::ones({600});
      values[place] = value;
      const at::Tensor result = decoded(values, WireFormat::kInt8);
      const std::int64_t start = place / 256 * 256;
      EXPECT_TRUE(result.slice(0, start, start + 256).isnan().all().item<bool>());
      EXPECT_EQ(result.isnan().sum().item<std::int64_t>(), start == 512 ? 88 : 256);
      EXPECT_TRUE(decoded(result, WireFormat::kInt8).isnan().equal(result.isnan()));
    }
  }
  EXPECT_THAT(decoded({kMax, -kMax}, WireFormat::kInt8),
              ElementsAre(FloatNear(kMax, kMax / 253), FloatNear(-kMax, kMax / 253)));
}

// Nothing that arrives is read outside its memory, whatever it says.
TEST(WireFormat, AllBytesCanBeDecoded) {
  at::manual_seed(3);
  for (const WireFormat format : kWireFormats) {
    const at::Tensor bytes = at::randint(256, {encoded_bytes(1000, format)}, at::kByte);
    decode(bytes, format, at::empty({1000}));
  }
  const at::Tensor lowest = at::tensor({0x80, 0x3f, 0x80}, at::kByte);  // scale 1, −128 steps
  const at::Tensor value = at::empty({1});
  decode(lowest, WireFormat::kInt8, value);
  EXPECT_EQ(value.item<float>(), -128);
}

TEST(WireFormat, WhatDoesNotFitIsRefused) {
  for (const WireFormat format : kWireFormats) {
    expect_throws<CheckError>(
        [&] { decode(encode(at::ones({300}), format), format, at::empty({299})); },
        {"299 values are"});
  }
  expect_throws<CheckError>([] { encode(at::ones({2, 2}), WireFormat::kInt8); }, {"fp32 [n]"});
  expect_throws<CheckError>([] { encode(at::ones({2}, at::kDouble), WireFormat::kBf16); },
                            {"fp32 [n]"});
}

}  // namespace
}  // namespace ladder
