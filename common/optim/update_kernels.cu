#include <c10/cuda/CUDAException.h>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/optim/update_kernels.hpp"

namespace ladder::kernels {
namespace {

// Nothing is kept of the rounded parameters where there are none.
struct None {
  __device__ None(float /*value*/) {}
};

// Four elements of one thread, read and written as one.
template <class Number>
struct alignas(4 * sizeof(Number)) Four {
  Number values[4];
};

// The formula of optimizer.hpp, in this order of operations: 7 values of 4 bytes pass through memory
// for each element, and the rounded one.
template <class Grad, class Rounded>
__global__ void adamw_kernel(Four<float>* params, const Four<Grad>* grads, Four<float>* exp_avgs,
                             Four<float>* exp_avg_sqs, Rounded* rounded, std::int64_t num_fours,
                             AdamWFactors f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < num_fours; i += stride) {
    Four<float> p = params[i], m = exp_avgs[i], v = exp_avg_sqs[i];
    const Four<Grad> gradient = grads[i];
    for (int k = 0; k < 4; ++k) {
      const float g = f.grad * static_cast<float>(gradient.values[k]);
      m.values[k] = f.beta1 * m.values[k] + f.one_minus_beta1 * g;
      v.values[k] = f.beta2 * v.values[k] + f.one_minus_beta2 * g * g;
      const float denominator = sqrtf(v.values[k]) / f.root_of_correction + f.eps;
      p.values[k] = f.kept * p.values[k] - f.step_size * m.values[k] / denominator;
    }
    params[i] = p;
    exp_avgs[i] = m;
    exp_avg_sqs[i] = v;
    if constexpr (!std::is_same_v<Rounded, None>) {
      Four<Rounded> low;
      for (int k = 0; k < 4; ++k) low.values[k] = static_cast<Rounded>(p.values[k]);
      reinterpret_cast<Four<Rounded>*>(rounded)[i] = low;
    }
  }
}

template <class Grad, class Rounded>
void start_adamw(float* params, const void* grads, float* exp_avg, float* exp_avg_sq, void* rounded,
                 std::int64_t numel, const AdamWFactors& factors, cudaStream_t stream) {
  const std::int64_t num_fours = numel / 4;
  adamw_kernel<Grad, Rounded><<<num_blocks_for(num_fours), kThreadsPerBlock, 0, stream>>>(
      reinterpret_cast<Four<float>*>(params), static_cast<const Four<Grad>*>(grads),
      reinterpret_cast<Four<float>*>(exp_avg), reinterpret_cast<Four<float>*>(exp_avg_sq),
      static_cast<Rounded*>(rounded), num_fours, factors);
}

// As norm.cpp adds up: element i of a block goes to lane i mod 16, and the lanes are added in order.
// So the bits are the CPU's; the square of an fp32 number is exact in double. A block takes 16
// threads, which read 16 neighbors at a time.
constexpr int kLanes = 16;
constexpr int kBlock = 1024;

template <class Number>
__global__ void block_sums_kernel(const Number* values, double* sums, std::int64_t numel) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t group =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  const std::int64_t num_groups = static_cast<std::int64_t>(gridDim.x) * blockDim.x / kLanes;
  const std::int64_t num_blocks = (numel + kBlock - 1) / kBlock;
  for (std::int64_t block = group; block < num_blocks; block += num_groups) {
    const std::int64_t end = min(numel, (block + 1) * kBlock);
    double sum = 0;
    for (std::int64_t i = block * kBlock + lane; i < end; i += kLanes) {
      const double value = static_cast<float>(values[i]);
      sum += value * value;
    }
    double total = 0;
    const unsigned members = 0xffffu << (threadIdx.x & kLanes);  // this half of the warp
    for (int other = 0; other < kLanes; ++other) total += __shfl_sync(members, sum, other, kLanes);
    if (lane == 0) sums[block] = total;
  }
}

}  // namespace

void adamw(float* params, const void* grads, c10::ScalarType grad_type, float* exp_avg,
           float* exp_avg_sq, void* rounded, c10::ScalarType rounded_type, std::int64_t numel,
           const AdamWFactors& factors, cudaStream_t stream) {
  check(numel % 4 == 0, "adamw: ", numel, " elements are not a multiple of 4");
  if (numel == 0) return;
  const auto is_aligned = [](const void* data, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  };
  check(is_aligned(params, 16) && is_aligned(exp_avg, 16) && is_aligned(exp_avg_sq, 16) &&
            is_aligned(grads, 4 * c10::elementSize(grad_type)) &&
            is_aligned(rounded, 4 * c10::elementSize(rounded_type)),
        "adamw: a tensor does not start at a multiple of four of its elements");
  with_float_type(grad_type, [&](auto grad) {
    using Grad = decltype(grad);
    if (rounded == nullptr) {
      start_adamw<Grad, None>(params, grads, exp_avg, exp_avg_sq, rounded, numel, factors, stream);
      return;
    }
    with_float_type(rounded_type, [&](auto number) {
      start_adamw<Grad, decltype(number)>(params, grads, exp_avg, exp_avg_sq, rounded, numel,
                                          factors, stream);
    });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void block_sums(const void* values, c10::ScalarType type, double* sums, std::int64_t numel,
                cudaStream_t stream) {
  if (numel == 0) return;
  const std::int64_t num_blocks = (numel + kBlock - 1) / kBlock;
  with_float_type(type, [&](auto number) {
    using Number = decltype(number);
    block_sums_kernel<Number><<<num_blocks_for(num_blocks * kLanes), kThreadsPerBlock, 0, stream>>>(
        static_cast<const Number*>(values), sums, numel);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder::kernels
