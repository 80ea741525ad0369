// The smallest kernel. It shows that code for the GPU is compiled, linked and run by the CUDA
// runtime that libtorch uses. Only in builds with CUDA.
#pragma once

#include <cstdint>

namespace ladder {

// Writes 0, 1, 2, … into `data`, `numel` fp32 numbers in the memory of the current GPU, on
// libtorch's current stream. Returns before they are written. Throws c10::Error if the GPU refuses.
void fill_with_indices(float* data, std::int64_t numel);

}  // namespace ladder
