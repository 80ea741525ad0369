#include <c10/cuda/CUDAException.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/optim/cuda/update_kernels.hpp"
#include "common/optim/round_to.hpp"

namespace ladder::kernels {
namespace {

// Nothing is kept of the rounded parameters where there are none.
struct None {
  __device__ None(float /*value*/) {}
};

// Four elements of one thread, read and written as one: a vectorized load and store.
template <class Number>
struct alignas(4 * sizeof(Number)) Vec4 {
  Number values[4];
};

// What a launch updates: its tensors one after the other, counted in fours. Their addresses are
// parameters of the kernel, of which there may be 32 KB.
constexpr std::size_t kTensorsPerLaunch = 128;

template <class Grad, class Rounded>
struct Segment {
  Vec4<float>* params;
  const Vec4<Grad>* grads;
  Vec4<float>*exp_avgs, *exp_avg_sqs;
  Vec4<Rounded>* rounded;
  std::int64_t end;  // where the next one begins
};
template <class Grad, class Rounded>
struct Segments {
  Segment<Grad, Rounded> of_tensor[kTensorsPerLaunch];
  int count;
};

// The formula of optimizer.hpp, in this order of operations: 7 values of 4 bytes pass through
// memory for each element, and the rounded one.
template <class Grad, class Rounded>
__device__ void update(const Segment<Grad, Rounded>& of, std::int64_t i, const AdamWFactors& f) {
  Vec4<float> p = of.params[i], m = of.exp_avgs[i], v = of.exp_avg_sqs[i];
  const Vec4<Grad> gradient = of.grads[i];
  for (int k = 0; k < 4; ++k) {
    const float g = f.grad * static_cast<float>(gradient.values[k]);
    m.values[k] = f.beta1 * m.values[k] + f.one_minus_beta1 * g;
    v.values[k] = f.beta2 * v.values[k] + f.one_minus_beta2 * g * g;
    const float denominator = sqrtf(v.values[k]) / f.root_of_correction + f.eps;
    p.values[k] = f.kept * p.values[k] - f.step_size * m.values[k] / denominator;
  }
  of.params[i] = p;
  of.exp_avgs[i] = m;
  of.exp_avg_sqs[i] = v;
  if constexpr (!std::is_same_v<Rounded, None>) {
    Vec4<Rounded> low;
    for (int k = 0; k < 4; ++k) low.values[k] = static_cast<Rounded>(p.values[k]);
    of.rounded[i] = low;
  }
}

// A grid-stride loop over all segments at once: each thread goes from one to the next as it passes
// its end. So many small tensors cost no more than one large one.
template <class Grad, class Rounded>
__global__ void adamw_kernel(Segments<Grad, Rounded> segments, AdamWFactors f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t end = segments.of_tensor[segments.count - 1].end;
  std::int64_t begin = 0;  // of segment s
  int s = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < end;
       i += stride) {
    while (i >= segments.of_tensor[s].end) begin = segments.of_tensor[s++].end;
    update(segments.of_tensor[s], i - begin, f);
  }
}

// As many of the tensors as one launch takes.
template <class Grad, class Rounded>
Segments<Grad, Rounded> segments_of(const AdamWTensor* tensors, std::size_t count) {
  Segments<Grad, Rounded> segments = {};
  std::int64_t end = 0;
  for (; segments.count < static_cast<int>(std::min(count, kTensorsPerLaunch)); ++segments.count) {
    const AdamWTensor& tensor = tensors[segments.count];
    end += tensor.numel / 4;
    segments.of_tensor[segments.count] = {reinterpret_cast<Vec4<float>*>(tensor.params),
                                          static_cast<const Vec4<Grad>*>(tensor.grads),
                                          reinterpret_cast<Vec4<float>*>(tensor.exp_avg),
                                          reinterpret_cast<Vec4<float>*>(tensor.exp_avg_sq),
                                          static_cast<Vec4<Rounded>*>(tensor.rounded),
                                          end};
  }
  return segments;
}

template <class Grad, class Rounded>
void start_adamw(const std::vector<AdamWTensor>& tensors, const AdamWFactors& factors,
                 cudaStream_t stream) {
  for (std::size_t first = 0; first < tensors.size(); first += kTensorsPerLaunch) {
    const auto segments = segments_of<Grad, Rounded>(&tensors[first], tensors.size() - first);
    const std::int64_t num_fours = segments.of_tensor[segments.count - 1].end;
    if (num_fours == 0) continue;
    adamw_kernel<Grad, Rounded>
        <<<num_blocks_for(num_fours), kThreadsPerBlock, 0, stream>>>(segments, factors);
  }
}

void check_alignment(const AdamWTensor& tensor, c10::ScalarType grad_type,
                     c10::ScalarType rounded_type) {
  if (tensor.numel == 0) return;
  check(tensor.numel % 4 == 0, "adamw: ", tensor.numel, " elements are not a multiple of 4");
  const auto is_aligned = [](const void* data, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  };
  check(is_aligned(tensor.params, 16) && is_aligned(tensor.exp_avg, 16) &&
            is_aligned(tensor.exp_avg_sq, 16) &&
            is_aligned(tensor.grads, 4 * c10::elementSize(grad_type)) &&
            is_aligned(tensor.rounded, 4 * c10::elementSize(rounded_type)),
        "adamw: a tensor does not start at a multiple of four of its elements");
}

// As norm.cpp adds up: element i of a block goes to lane i mod 16, and the lanes are added in
// order. So the bits are the CPU's; the square of an fp32 number is exact in double. A block takes
// 16 threads, which read 16 neighbors at a time.
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
    double total = 0;  // by warp shuffles: each thread reads the sums of the others
    const unsigned members = 0xffffu << (threadIdx.x & kLanes);  // this half of the warp
    for (int other = 0; other < kLanes; ++other) total += __shfl_sync(members, sum, other, kLanes);
    if (lane == 0) sums[block] = total;
  }
}

// A thread for each element; round_to() of exact_sums.hpp, to which quanta[0] belongs to the block that
// begins `offset` elements before the first.
template <class Number>
__global__ void round_kernel(Number* values, std::int64_t numel, const float* quanta,
                             std::int64_t offset, float share) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < numel;
       i += stride) {
    const float quantum = quanta[(offset + i) / kBlock];
    values[i] =
        static_cast<Number>(round_to(quantum, share * quantum, static_cast<float>(values[i])));
  }
}

}  // namespace

void adamw(const std::vector<AdamWTensor>& tensors, c10::ScalarType grad_type,
           c10::ScalarType rounded_type, const AdamWFactors& factors, cudaStream_t stream) {
  if (tensors.empty()) return;
  for (const AdamWTensor& tensor : tensors) check_alignment(tensor, grad_type, rounded_type);
  with_float_type(grad_type, [&](auto grad) {
    using Grad = decltype(grad);
    if (tensors.front().rounded == nullptr) {
      start_adamw<Grad, None>(tensors, factors, stream);
      return;
    }
    with_float_type(rounded_type, [&](auto number) {
      start_adamw<Grad, decltype(number)>(tensors, factors, stream);
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

void round_to_quanta(void* values, c10::ScalarType type, std::int64_t numel, const float* quanta,
                     std::int64_t offset, float share, cudaStream_t stream) {
  if (numel == 0) return;
  with_float_type(type, [&](auto number) {
    using Number = decltype(number);
    round_kernel<Number><<<num_blocks_for(numel), kThreadsPerBlock, 0, stream>>>(
        static_cast<Number*>(values), numel, quanta, offset, share);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder::kernels
