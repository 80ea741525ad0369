// Values as bytes, for a slow link: exact in fp32, or rounded to fewer bits.
//
//          bytes of n values      what a value decodes to                   off by at most
//   fp32   4n                     itself                                    0
//   bf16   2n                     the nearest one with 8 significant bits   |x| / 256
//   int8   n + 2 · ⌈n / 256⌉      a whole number of its block's steps         max |block| / 253
//
// In int8, 256 consecutive values are a block and share a step, or scale: 1/127 of the block's
// largest magnitude. A value is sent as a number of steps from −127 to 127. If n is not a multiple
// of 256, the last block is shorter. The scale itself is sent in bf16, with 8 significant bits.
// That makes the step up to 1/256 longer, hence 253 in place of 254, and brings two advantages:
//
//   a number of steps has 7 bits, so its product with the scale is exact in fp32: every machine decodes
//   the same bits, and values that were decoded once are encoded again without another error;
//   no tensor is larger than in fp32, be it one value: 3 bytes.
//
// Halves are rounded to the even neighbor: as often up as down, so that errors do not add up.
//
// Near zero: in bf16 a value below 2^−126, fp32's smallest normal number, is off by up to 2^−134.
// In int8 a block whose scale would be below 2^−126, with values up to 1.5e-36, decodes to zeros,
// and −0 to 0.
//
// What is not finite never becomes finite: a worker that has diverged is seen by all. In bf16, inf
// and nan decode to themselves, and a finite value above 3.39e38 to inf. In int8, a block with an
// inf or a nan decodes to nan, all of it, because its other values have no scale to be measured
// with.
//
// Pure and local. Byte order: the machine's. Scratch: up to about 12 bytes per value in int8.
#pragma once

#include <cstdint>

#include "step9_diloco/diloco_options.hpp"

namespace at {
class Tensor;
}

namespace ladder {

inline constexpr WireFormat kWireFormats[] = {WireFormat::kFp32, WireFormat::kBf16,
                                              WireFormat::kInt8};
inline constexpr std::int64_t kWireBlock = 256;  // values that share a scale

std::int64_t num_wire_blocks(std::int64_t numel);
std::int64_t encoded_bytes(std::int64_t numel, WireFormat format);

// values: [n] fp32. Returns new memory, uint8 [encoded_bytes(n)]: in int8 first the scales of all
// blocks, then the numbers of steps.
at::Tensor encode(const at::Tensor& values, WireFormat format);

// Overwrites `values`, [n] fp32. `bytes`: uint8 [encoded_bytes(n)], a tensor of its own. All bytes
// are valid. Throws CheckError naming both sizes if they do not fit.
void decode(const at::Tensor& bytes, WireFormat format, const at::Tensor& values);

}  // namespace ladder
