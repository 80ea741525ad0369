// Values to bytes and back (wire_format.hpp).
#include "step9_diloco/wire_format.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/isfinite.h>

#include <limits>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr int kMaxSteps = 127;

// [n] → [num_wire_blocks(n), kWireBlock], filled up with zeros, which no maximum notices.
at::Tensor in_blocks(const at::Tensor& values) {
  const std::int64_t numel = values.numel(), rows = num_wire_blocks(numel);
  return at::constant_pad_nd(values, {0, rows * kWireBlock - numel}).view({rows, kWireBlock});
}

at::Tensor bytes_of(const at::Tensor& values) {
  return values.view(at::kByte);
}

// The step of each block: [num_blocks, 1] fp32 with the bits of bf16; 0 or nan where there is none.
at::Tensor scales_of(const at::Tensor& blocks) {
  at::Tensor scales = blocks.abs().amax(1, /*keepdim=*/true).div_(kMaxSteps);
  scales = scales.to(at::kBFloat16).to(at::kFloat);
  scales.masked_fill_(scales < std::numeric_limits<float>::min(), 0);
  const at::Tensor is_none = at::isfinite(scales).logical_not();
  return scales.masked_fill_(is_none, std::numeric_limits<float>::quiet_NaN());
}

at::Tensor encode_int8(const at::Tensor& values) {
  const at::Tensor blocks = in_blocks(values), scales = scales_of(blocks);
  // A scale of 0 or nan leaves inf or nan here, but its product with any number is what it should
  // be.
  const at::Tensor steps = (blocks / scales).nan_to_num_(0, 0, 0).round_().to(at::kChar);
  return at::cat({bytes_of(scales.to(at::kBFloat16).view({-1})),
                  bytes_of(steps.view({-1}).slice(0, 0, values.numel()))});
}

void decode_int8(const at::Tensor& bytes, const at::Tensor& values) {
  const std::int64_t numel = values.numel(), rows = num_wire_blocks(numel);
  const at::Tensor scales = bytes.slice(0, 0, 2 * rows).view(at::kBFloat16).to(at::kFloat);
  const at::Tensor steps = bytes.slice(0, 2 * rows).view(at::kChar).to(at::kFloat);
  values.copy_((in_blocks(steps) * scales.view({rows, 1})).view({-1}).slice(0, 0, numel));
}

}  // namespace

at::Tensor encode(const at::Tensor& values, WireFormat format) {
  check(values.dim() == 1 && values.scalar_type() == at::kFloat,
        "encode: values are fp32 [n], got ", values.scalar_type(), " ", values.sizes());
  switch (format) {
    case WireFormat::kFp32:
      return bytes_of(values.clone());
    case WireFormat::kBf16:
      return bytes_of(values.to(at::kBFloat16));
    case WireFormat::kInt8:
      return encode_int8(values);
  }
  throw CheckError("no such wire format");
}

void decode(const at::Tensor& bytes, WireFormat format, const at::Tensor& values) {
  check(bytes.numel() == encoded_bytes(values.numel(), format), "decode: ", values.numel(),
        " values are ", encoded_bytes(values.numel(), format), " bytes, got ", bytes.numel());
  switch (format) {
    case WireFormat::kFp32:
      values.copy_(bytes.view(at::kFloat));
      return;
    case WireFormat::kBf16:
      values.copy_(bytes.view(at::kBFloat16));
      return;
    case WireFormat::kInt8:
      decode_int8(bytes, values);
      return;
  }
}

}  // namespace ladder
