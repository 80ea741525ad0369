// What a model's numbers are stored as: its parameters, its gradients, and the master copies of the
// parameters that the optimizer updates.
//
//                              fp32    bf16 or fp16
//   parameter                     4               2   the model computes with it, ranks exchange it
//   gradient                      4               4   2 with --grad-dtype
//   master                        0               4   the parameter in fp32; with AdamW's two moments
//   bytes per element, AdamW     16              18   (8) it makes up the optimizer's state
//
// Why masters: a step changes a parameter by about the learning rate, 1e-3 of its size or less. In
// bf16 neighboring numbers are 4e-3 apart, so most steps would round away to nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ladder {

inline bool is_16_bit(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

// 16-bit values as fp32, all others as they are: what sums and losses are computed from.
inline at::Tensor widened(const at::Tensor& values) {
  return is_16_bit(values.scalar_type()) ? values.to(at::kFloat) : values;
}

struct Precision {
  at::ScalarType params = at::kFloat;
  at::ScalarType grads = at::kFloat;

  bool has_16_bit_params() const { return is_16_bit(params); }
  std::int64_t param_bytes() const { return bytes_of(params); }
  std::int64_t grad_bytes() const { return bytes_of(grads); }
  // The bytes of the narrower type, in which alignment is counted.
  std::int64_t narrowest_bytes() const {
    return param_bytes() < grad_bytes() ? param_bytes() : grad_bytes();
  }

  bool operator==(const Precision&) const = default;

 private:
  static std::int64_t bytes_of(at::ScalarType type) {
    return static_cast<std::int64_t>(c10::elementSize(type));
  }
};

}  // namespace ladder
