// Stochastic rounding: 16 bits without masters that are right on average.
//
// Between two neighboring 16-bit numbers, a value is rounded up with the probability of its place
// between them: a quarter of the way up, once in four times. So a change that is too small for 16
// bits is not lost but made now and then, as often as it should be. (To the nearest, it would be
// rounded away each time.) What it costs is noise. Gupta et al., Deep Learning with Limited
// Numerical Precision, arXiv 1502.02551.
//
// The random numbers depend on seed, step, tensor and the element's place in it, and on nothing
// else: element i draws number i of its tensor's stream. So every rank rounds what it owns as a
// single process would, however the tensor is cut, and copies of a tensor stay equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace ladder {

// The stream of a tensor in an optimizer step.
std::uint64_t rounding_stream(std::uint64_t seed, std::int64_t step, std::string_view tensor);

// Rounds `values` [n], fp32, into `rounded` [n], bf16 or fp16, both contiguous and on the CPU.
// Element i draws number first + i of the stream. A value that needs no rounding, or is not finite,
// is converted as always. Throws CheckError for other types.
void round_stochastically(const at::Tensor& values, const at::Tensor& rounded, std::uint64_t stream,
                          std::int64_t first);

}  // namespace ladder
