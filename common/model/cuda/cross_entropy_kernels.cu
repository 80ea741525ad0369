#include <c10/cuda/CUDAException.h>
#include <c10/macros/Macros.h>

#include <limits>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/model/cuda/cross_entropy_kernels.hpp"

namespace ladder::kernels {
namespace {

// A block of threads takes one row, from left to right (a block-stride loop). In each round every
// thread reads kGroup numbers before it needs the first of them, so that enough of them are on
// their way (instruction-level parallelism). Neighboring threads read neighboring numbers
// (coalesced); nothing depends on where in memory the row begins.
constexpr int kGroup = 8;
constexpr int kRound = kGroup * kThreadsPerBlock;

__device__ int column_of(int round_begin, int k) {
  return round_begin + k * kThreadsPerBlock + static_cast<int>(threadIdx.x);
}

// Beyond the end of the row, -inf: it adds nothing.
template <class Number>
__device__ void read_group(const Number* row, int round_begin, int num_classes,
                           float (&numbers)[kGroup]) {
  const bool is_whole = round_begin + kRound <= num_classes;
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    const int column = column_of(round_begin, k);
    numbers[k] = is_whole || column < num_classes ? static_cast<float>(row[column])
                                                  : -std::numeric_limits<float>::infinity();
  }
}

template <class Number>
__device__ void write_group(Number* row, int round_begin, int num_classes,
                            const float (&numbers)[kGroup]) {
  const bool is_whole = round_begin + kRound <= num_classes;
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    const int column = column_of(round_begin, k);
    if (is_whole || column < num_classes) row[column] = static_cast<Number>(numbers[k]);
  }
}

// A tree reduction in shared memory. Merges the threads' sums in a fixed order: the second half
// into the first, and so on. Thread 0 gets the result. Called by all threads of the block, once.
__device__ SoftmaxSum merge_over_block(const SoftmaxSum& own) {
  __shared__ SoftmaxSum sums[kThreadsPerBlock];
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = own;
  for (int half = kThreadsPerBlock / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread].merge(sums[thread + half]);
  }
  return sums[thread];
}

template <class Number>
__global__ void cross_entropy_kernel(const Number* logits, int num_classes, std::int64_t row_stride,
                                     const std::int64_t* targets, std::int64_t ignored_target,
                                     float* losses, SoftmaxSum* sums) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t target = targets[r];
  if (target == ignored_target) {  // the same for all threads of the block
    if (threadIdx.x == 0) {
      losses[r] = 0;
      sums[r] = SoftmaxSum::of_nothing();
    }
    return;
  }
  CUDA_KERNEL_ASSERT(target >= 0 && target < num_classes);
  const Number* row = logits + r * row_stride;
  SoftmaxSum sum = SoftmaxSum::of_nothing();
  for (int begin = 0; begin < num_classes; begin += kRound) {
    float numbers[kGroup];
    read_group(row, begin, num_classes, numbers);
    sum.add(numbers);
  }
  sum = merge_over_block(sum);
  if (threadIdx.x == 0) {
    losses[r] = sum.loss(static_cast<float>(row[target]));
    sums[r] = sum;
  }
}

template <class Number>
__global__ void cross_entropy_backward_kernel(const Number* logits, int num_classes,
                                              std::int64_t row_stride, const std::int64_t* targets,
                                              std::int64_t ignored_target, const SoftmaxSum* sums,
                                              const float* upstream, Number* gradients) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t target = targets[r];
  const SoftmaxSum sum = sums[r];
  const float slope = *upstream;
  for (int begin = 0; begin < num_classes; begin += kRound) {
    float numbers[kGroup] = {};
    if (target != ignored_target) {  // the same for all threads of the block
      read_group(logits + r * row_stride, begin, num_classes, numbers);
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        numbers[k] = sum.gradient(numbers[k], column_of(begin, k) == target, slope);
    }
    write_group(gradients + r * row_stride, begin, num_classes, numbers);
  }
}

// False if there is nothing to do: a grid has at least one block.
bool has_rows(const LogitRows& rows) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() - kRound;  // no sum overflows
  check(rows.num_rows <= kMost && rows.num_classes <= kMost, "cross_entropy: ", rows.num_rows,
        " x ", rows.num_classes, " logits; it takes up to ", kMost, " rows and as many classes");
  return rows.num_rows > 0;
}

}  // namespace

void cross_entropy(const LogitRows& rows, float* losses, SoftmaxSum* sums, cudaStream_t stream) {
  if (!has_rows(rows)) return;
  with_float_type(rows.type, [&](auto number) {
    using Number = decltype(number);
    cross_entropy_kernel<Number>
        <<<static_cast<unsigned>(rows.num_rows), kThreadsPerBlock, 0, stream>>>(
            static_cast<const Number*>(rows.logits), static_cast<int>(rows.num_classes),
            rows.row_stride, rows.targets, rows.ignored_target, losses, sums);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void cross_entropy_backward(const LogitRows& rows, const SoftmaxSum* sums, const float* upstream,
                            void* gradients, cudaStream_t stream) {
  if (!has_rows(rows)) return;
  with_float_type(rows.type, [&](auto number) {
    using Number = decltype(number);
    cross_entropy_backward_kernel<Number>
        <<<static_cast<unsigned>(rows.num_rows), kThreadsPerBlock, 0, stream>>>(
            static_cast<const Number*>(rows.logits), static_cast<int>(rows.num_classes),
            rows.row_stride, rows.targets, rows.ignored_target, sums, upstream,
            static_cast<Number*>(gradients));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder::kernels
