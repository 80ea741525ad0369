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

#include <cstdint>

namespace ladder {

// Named as in the options; to_torch() (torch_types.hpp) says what libtorch calls it.
enum class NumberFormat { kFp32, kBf16, kFp16 };

inline bool is_16_bit(NumberFormat format) {
  return format != NumberFormat::kFp32;
}

// "fp32", "bf16" or "fp16".
inline const char* format_name(NumberFormat format) {
  return format == NumberFormat::kFp32 ? "fp32" : format == NumberFormat::kFp16 ? "fp16" : "bf16";
}

struct Precision {
  NumberFormat params = NumberFormat::kFp32;
  NumberFormat grads = NumberFormat::kFp32;

  bool has_16_bit_params() const { return is_16_bit(params); }
  std::int64_t param_bytes() const { return bytes_of(params); }
  std::int64_t grad_bytes() const { return bytes_of(grads); }
  // The bytes of the narrower type, in which alignment is counted.
  std::int64_t narrowest_bytes() const {
    return param_bytes() < grad_bytes() ? param_bytes() : grad_bytes();
  }

  bool operator==(const Precision&) const = default;

 private:
  static std::int64_t bytes_of(NumberFormat format) { return is_16_bit(format) ? 2 : 4; }
};

}  // namespace ladder
