// The fold of tree_fold.hpp on a GPU.
//
// Each sum is rounded to the elements' own type, as on the CPU, so the bits are the same. One pass:
// every piece is read once, the target written once.
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ladder {

// Starts the fold on this stream. pieces[r] is rank r's, `numel` elements of `dtype` (a type that
// can be reduced) in the GPU's memory, aligned to its size. The target may be pieces[own], which is
// written only then; beyond 256 pieces the others are scratch. Throws c10::Error if the kernel
// cannot be started.
void fold_on_gpu(const std::vector<std::byte*>& pieces, int own, std::byte* target,
                 c10::ScalarType dtype, std::int64_t numel, cudaStream_t stream);

}  // namespace ladder
