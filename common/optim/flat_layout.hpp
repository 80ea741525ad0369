// The place of every tensor of a model in one flat buffer.
//
//   | unit "embedding"               | unit "block0"                          | …
//   | wte.weight ··| wpe.weight ·····| h.0.ln_1.weight ·| h.0.ln_1.bias ·| …   (· is padding)
//
// Tensors are stored unit by unit, in the order of the forward pass. Each starts at a multiple of
// 64 bytes in every buffer with this layout, because kernels give the same bits for the same
// numbers only at the same alignment: at a multiple of 16 elements if all is fp32, of 32 if
// parameters take 16 bits. On a GPU it is a multiple of 256 bytes: up to there, cuBLAS looks at an
// address before it chooses a kernel. A unit's length is a multiple of the number that the caller
// passes, so that it can be cut into equal slices. If a unit is cut into parts, each of them begins
// at a norm block (norm.hpp), as if it began a unit: then the blocks are those of any rank that has
// only some parts. Padding is part of every buffer with this layout, is always zero, and counts in
// all figures of memory and traffic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/core/device.hpp"
#include "common/core/precision.hpp"
#include "common/core/unit_shape.hpp"

namespace c10 {
struct TensorOptions;
}

namespace ladder {

struct Unit;  // unit.hpp

inline constexpr std::int64_t kTensorAlignmentBytes = 64;
inline constexpr std::int64_t kTensorAlignmentBytesOnGpu = 256;
inline constexpr std::int64_t kNormBlock = 1024;  // elements (norm.hpp)
// The blocks of a piece; the last one may be shorter.
inline std::int64_t num_norm_blocks(std::int64_t numel) {
  return (numel + kNormBlock - 1) / kNormBlock;
}

struct FlatTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t start = 0;               // in elements from the start of the buffer
  std::int64_t numel = 0;               // without padding
  std::int64_t padded_numel = 0;        // a multiple of the layout's alignment
  bool is_trainable = true;             // false for a frozen parameter, which no optimizer updates
  std::optional<TensorPart> part = {};  // of which tensor it is a part, if it is
};

struct FlatUnit {
  std::string name;
  std::int64_t start = 0;
  std::int64_t numel = 0;  // padding included: a multiple of the layout's unit multiple
};

struct FlatLayout {
  std::vector<FlatTensor> tensors;
  std::vector<FlatUnit> units;
  std::int64_t numel = 0;           // of the whole buffer, padding included
  std::int64_t num_parameters = 0;  // without padding
  Precision precision = {};
  Device device = {};              // where buffers with this layout are allocated
  std::int64_t alignment() const;  // of the tensors' starts, in elements
  c10::TensorOptions buffer(NumberFormat format) const;
};

// The tensors that are parts of larger ones, by their names.
std::map<std::string, TensorPart> parts_of(const FlatLayout& layout);

// The same places for values that are all fp32.
FlatLayout in_fp32(FlatLayout layout);

// Plans the layout of these units, whose tensors are all stored with this precision. Buffers will be
// on `device`. Throws CheckError for a duplicate name, or a unit_multiple below 1.
FlatLayout plan_flat_layout(const std::vector<UnitShape>& units, const Precision& precision,
                            std::int64_t unit_multiple = 1, Device device = {});

// The same for units with tensors. Reads only the tensors' names, shapes and types, so they may be
// on the meta device; what a tensor's gradient is stored as is its own grad_dtype(). Also throws
// CheckError for tensors of different types.
FlatLayout plan_flat_layout(const std::vector<Unit>& units, std::int64_t unit_multiple = 1,
                            Device device = {});

}  // namespace ladder
