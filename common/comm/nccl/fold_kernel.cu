#include <c10/cuda/CUDAException.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <utility>

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"

namespace ladder {
namespace {

// The addresses of so many pieces take half of a kernel's parameters; a longer list is folded in
// several passes. A power of two, so that groups of so many are subtrees (tree_sum.hpp).
constexpr int kMostLevels = 8, kPiecesPerPass = 1 << kMostLevels;
// A kernel for up to 2^kFewLevels pieces, which takes fewer registers.
constexpr int kFewLevels = 3;

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

// The tree of up to 2^kLevels pieces, as a binary counter counts: the sum of 2^k of them waits at
// level k for that of the next 2^k. In the end the levels with a sum are the bits of the number of
// pieces. Loops over levels are unrolled, so that the sums are in registers.
template <int kLevels, class Number>
__global__ void fold(Pieces<Number> pieces, Number* target, std::int64_t numel) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       first < numel; first += kGroup * stride) {
    Number waiting[kLevels + 1][kGroup] = {};
    for (int r = 0; r < pieces.count; ++r) {
      Number sums[kGroup] = {};
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        if (const std::int64_t i = first + k * stride; i < numel) sums[k] = pieces.of_rank[r][i];
      int level_of_sum = 0;
      while ((r >> level_of_sum & 1) != 0) ++level_of_sum;
#pragma unroll
      for (int level = 0; level <= kLevels; ++level) {
#pragma unroll
        for (int k = 0; k < kGroup; ++k) {
          if (level < level_of_sum) sums[k] = plus(waiting[level][k], sums[k]);
          if (level == level_of_sum) waiting[level][k] = sums[k];
        }
      }
    }
    Number sums[kGroup] = {};
    bool has_sums = false;
#pragma unroll
    for (int level = 0; level <= kLevels; ++level) {
      if ((pieces.count >> level & 1) == 0) continue;
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        sums[k] = has_sums ? plus(waiting[level][k], sums[k]) : waiting[level][k];
      has_sums = true;
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k)
      if (const std::int64_t i = first + k * stride; i < numel) target[i] = sums[k];
  }
}

template <class Number>
void start(std::vector<std::byte*> pieces, int own, std::byte* target, std::int64_t numel,
           cudaStream_t stream) {
  const auto start_pass = [&](std::size_t begin, std::size_t end, std::byte* sum) {
    Pieces<Number> pass = {};
    for (std::size_t r = begin; r < end; ++r)
      pass.of_rank[pass.count++] = reinterpret_cast<const Number*>(pieces[r]);
    auto* const written = reinterpret_cast<Number*>(sum);
    const unsigned num_blocks = num_blocks_for(numel);
    if (pass.count <= 1 << kFewLevels) {
      fold<kFewLevels><<<num_blocks, kThreadsPerBlock, 0, stream>>>(pass, written, numel);
    } else {
      fold<kMostLevels><<<num_blocks, kThreadsPerBlock, 0, stream>>>(pass, written, numel);
    }
  };
  const std::byte* const kept = pieces[static_cast<std::size_t>(own)];
  while (pieces.size() > kPiecesPerPass) {
    std::vector<std::byte*> sums;  // of groups, in place
    for (std::size_t begin = 0; begin < pieces.size(); begin += kPiecesPerPass) {
      const std::size_t end = std::min(begin + kPiecesPerPass, pieces.size());
      const bool is_one = end - begin == 1;
      sums.push_back(pieces[begin] == kept && !is_one ? pieces[begin + 1] : pieces[begin]);
      if (!is_one) start_pass(begin, end, sums.back());
    }
    pieces = std::move(sums);
  }
  start_pass(0, pieces.size(), target);
}

}  // namespace

void fold_on_gpu(const std::vector<std::byte*>& pieces, int own, std::byte* target,
                 c10::ScalarType dtype, std::int64_t numel, cudaStream_t stream) {
  if (numel == 0) return;
  switch (dtype) {
    case c10::ScalarType::Half:
      start<c10::Half>(pieces, own, target, numel, stream);
      break;
    case c10::ScalarType::BFloat16:
      start<c10::BFloat16>(pieces, own, target, numel, stream);
      break;
    case c10::ScalarType::Float:
      start<float>(pieces, own, target, numel, stream);
      break;
    case c10::ScalarType::Double:
      start<double>(pieces, own, target, numel, stream);
      break;
    case c10::ScalarType::Int:
      start<std::int32_t>(pieces, own, target, numel, stream);
      break;
    case c10::ScalarType::Long:
      start<std::int64_t>(pieces, own, target, numel, stream);
      break;
    default:
      throw CheckError(concat("fold_on_gpu: cannot sum ", dtype));
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder
