// Number formats and devices of the options, as libtorch's types. Theory and plans need no tensor, and
// know nothing of these; where tensors are made, the options are translated here.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "common/core/check.hpp"
#include "common/core/device.hpp"
#include "common/core/precision.hpp"

namespace ladder {

inline at::ScalarType to_torch(NumberFormat format) {
  return format == NumberFormat::kFp32   ? at::kFloat
         : format == NumberFormat::kFp16 ? at::kHalf
                                         : at::kBFloat16;
}

inline at::Device to_torch(Device device) {
  return device.is_cuda() ? at::kCUDA : at::kCPU;
}

// Throws CheckError for a type that no parameter has.
inline NumberFormat format_of(at::ScalarType type) {
  check(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, "parameters are ", type,
        ", they must be fp32, bf16 or fp16");
  return type == at::kFloat  ? NumberFormat::kFp32
         : type == at::kHalf ? NumberFormat::kFp16
                             : NumberFormat::kBf16;
}

inline const char* format_name(at::ScalarType type) {
  return format_name(format_of(type));
}

inline Device device_of(at::Device device) {
  return device.is_cuda() ? Device::kCuda : Device::kCpu;
}

inline bool is_16_bit(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

// 16-bit values as fp32, all others as they are: what sums and losses are computed from.
inline at::Tensor widened(const at::Tensor& values) {
  return is_16_bit(values.scalar_type()) ? values.to(at::kFloat) : values;
}

}  // namespace ladder
