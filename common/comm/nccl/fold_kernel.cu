#include <c10/cuda/CUDAException.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"

namespace ladder {
namespace {

// The addresses of so many pieces take half of a kernel's parameters; a longer list is folded in
// several passes.
constexpr int kPiecesPerPass = 256;

template <class Number>
struct Pieces {
  const Number* of_rank[kPiecesPerPass];
  int count;
};

template <class Number>
__device__ Number plus(Number a, Number b) {
  return a + b;
}
// c10's own operators round to the 16-bit type, too; in fp32 in between, as on the CPU.
__device__ c10::BFloat16 plus(c10::BFloat16 a, c10::BFloat16 b) {
  return static_cast<float>(a) + static_cast<float>(b);
}
__device__ c10::Half plus(c10::Half a, c10::Half b) {
  return static_cast<float>(a) + static_cast<float>(b);
}

// An element belongs to one thread, which reads it from all pieces before it writes it. This is a
// grid-stride loop: a thread goes on to the element that is as many elements further on as the grid
// has threads. So a grid of any size does the work, and neighboring threads read neighboring
// elements (coalesced). Each thread adds up a few elements at a time, so that enough of them are on
// their way.
constexpr int kGroup = 4;

template <class Number>
__global__ void fold(Pieces<Number> pieces, Number* target, std::int64_t numel) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       first < numel; first += kGroup * stride) {
    Number sums[kGroup] = {};
    for (int r = 0; r < pieces.count; ++r) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const std::int64_t i = first + k * stride;
        if (i >= numel) continue;
        const Number element = pieces.of_rank[r][i];
        sums[k] = r == 0 ? element : plus(sums[k], element);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k)
      if (const std::int64_t i = first + k * stride; i < numel) target[i] = sums[k];
  }
}

template <class Number>
void start(const std::vector<std::byte*>& pieces, std::byte* target, std::int64_t numel,
           cudaStream_t stream) {
  Pieces<Number> pass = {};
  for (std::size_t next = 0; next < pieces.size();) {
    // After the first pass, the sum so far is the first piece.
    pass.count = 0;
    if (next > 0) pass.of_rank[pass.count++] = reinterpret_cast<const Number*>(target);
    while (pass.count < kPiecesPerPass && next < pieces.size())
      pass.of_rank[pass.count++] = reinterpret_cast<const Number*>(pieces[next++]);
    fold<<<num_blocks_for(numel), kThreadsPerBlock, 0, stream>>>(
        pass, reinterpret_cast<Number*>(target), numel);
  }
}

}  // namespace

void fold_on_gpu(const std::vector<std::byte*>& pieces, std::byte* target, c10::ScalarType dtype,
                 std::int64_t numel, cudaStream_t stream) {
  if (numel == 0) return;
  for (std::size_t later = kPiecesPerPass; later < pieces.size(); ++later) {
    check(pieces[later] != target, "fold_on_gpu: the target is piece ", later,
          ", which would be overwritten before it is added; it may be one of the first ",
          kPiecesPerPass);
  }
  switch (dtype) {
    case c10::ScalarType::Half:
      start<c10::Half>(pieces, target, numel, stream);
      break;
    case c10::ScalarType::BFloat16:
      start<c10::BFloat16>(pieces, target, numel, stream);
      break;
    case c10::ScalarType::Float:
      start<float>(pieces, target, numel, stream);
      break;
    case c10::ScalarType::Double:
      start<double>(pieces, target, numel, stream);
      break;
    case c10::ScalarType::Int:
      start<std::int32_t>(pieces, target, numel, stream);
      break;
    case c10::ScalarType::Long:
      start<std::int64_t>(pieces, target, numel, stream);
      break;
    default:
      throw CheckError(concat("fold_on_gpu: cannot sum ", dtype));
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder
