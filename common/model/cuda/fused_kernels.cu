#include <c10/cuda/CUDAException.h>

#include <limits>
#include <type_traits>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/model/cuda/fused_kernels.hpp"

namespace ladder::kernels {
namespace {

// Eight numbers, which a thread reads and writes as one if they have 16 bits, and otherwise as two: a
// vectorized load and store.
constexpr int kVector = 8;
template <class Number>
struct alignas(16) Vector {
  Number values[kVector];
};

template <class Number>
__device__ Vector<Number> read(const Number* from) {
  return *reinterpret_cast<const Vector<Number>*>(from);
}
template <class Number>
__device__ void read(const Number* from, float (&numbers)[kVector]) {
  const Vector<Number> vector = read(from);
#pragma unroll
  for (int i = 0; i < kVector; ++i) numbers[i] = static_cast<float>(vector.values[i]);
}

template <class Number>
__device__ void write(Number* to, const float (&numbers)[kVector]) {
  Vector<Number> vector;
#pragma unroll
  for (int i = 0; i < kVector; ++i) vector.values[i] = static_cast<Number>(numbers[i]);
  *reinterpret_cast<Vector<Number>*>(to) = vector;
}

// ---- LayerNorm: a block takes a row, and each of its threads the same columns of every row -------

constexpr int kNormThreads = 128;
constexpr int kNormRows = 16;  // of a block of the backward, one after the other
constexpr int kWarp = 32;

__device__ int column_of(int k) {  // where vector k of this thread begins
  return (k * kNormThreads + static_cast<int>(threadIdx.x)) * kVector;
}

// Sums over the threads of the block, which all get the same bits: first over each warp by shuffles
// (a + b is b + a), then over the warps through shared memory.
template <int kCount>
__device__ void sum_over_block(float (&values)[kCount]) {
  __shared__ float of_warp[kNormThreads / kWarp][kCount];
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // nobody reads the previous sums any more
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      values[i] += __shfl_xor_sync(0xffffffffu, values[i], distance, kWarp);
    if (thread % kWarp == 0) of_warp[thread / kWarp][i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0;
    for (int warp = 0; warp < kNormThreads / kWarp; ++warp) values[i] += of_warp[warp][i];
  }
}

// The mean is subtracted before squares are added up, so that nothing cancels.
template <class Number, int kVectors>
__global__ void add_layer_norm_kernel(const Number* x, const Number* branch, const Number* weight,
                                      const Number* bias, float epsilon, int num_columns,
                                      Number* sums, Number* normed, RowStatistics* statistics) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * num_columns;
  float numbers[kVectors][kVector] = {}, total[1] = {}, squares[1] = {};
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int c = column_of(k);
    if (c >= num_columns) continue;
    read(x + row + c, numbers[k]);
    if (branch != nullptr) {
      float added[kVector];
      read(branch + row + c, added);
#pragma unroll
      for (int i = 0; i < kVector; ++i)  // rounded, as the sum that backward will read
        numbers[k][i] = static_cast<float>(static_cast<Number>(numbers[k][i] + added[i]));
      write(sums + row + c, numbers[k]);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) total[0] += numbers[k][i];
  }
  sum_over_block(total);
  const float mean = total[0] / static_cast<float>(num_columns);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (column_of(k) >= num_columns) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      numbers[k][i] -= mean;
      squares[0] += numbers[k][i] * numbers[k][i];
    }
  }
  sum_over_block(squares);
  const float scale = 1.0f / sqrtf(squares[0] / static_cast<float>(num_columns) + epsilon);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int c = column_of(k);
    if (c >= num_columns) continue;
    float w[kVector], b[kVector];
    read(weight + c, w);
    read(bias + c, b);
#pragma unroll
    for (int i = 0; i < kVector; ++i) numbers[k][i] = numbers[k][i] * scale * w[i] + b[i];
    write(normed + row + c, numbers[k]);
  }
  if (threadIdx.x == 0) statistics[blockIdx.x] = {mean, scale};
}

// With n = (x - mean) · scale and g = dnormed · weight:
//   dx = dsum + scale · (g - mean(g) - n · mean(g · n))
// dnormed · n and dnormed, added up over the block's rows, are its part of the gradients of weight
// and bias.
template <class Number, int kVectors>
__global__ void add_layer_norm_backward_kernel(const Number* sums, const RowStatistics* statistics,
                                               const Number* weight, const Number* dnormed,
                                               const Number* dsum, int num_rows, int num_columns,
                                               Number* dx, float* parts) {
  float dweight[kVectors][kVector] = {}, dbias[kVectors][kVector] = {};
  const int begin = static_cast<int>(blockIdx.x) * kNormRows;
  for (int r = begin; r < min(num_rows, begin + kNormRows); ++r) {
    const std::int64_t row = static_cast<std::int64_t>(r) * num_columns;
    const RowStatistics of_row = statistics[r];
    float n[kVectors][kVector] = {}, g[kVectors][kVector] = {}, skipped[kVectors][kVector] = {};
    float means[2] = {};  // of g and of g · n
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int c = column_of(k);
      if (c >= num_columns) continue;
      float w[kVector];
      read(sums + row + c, n[k]);
      read(dnormed + row + c, g[k]);
      if (dsum != nullptr) read(dsum + row + c, skipped[k]);
      read(weight + c, w);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        n[k][i] = (n[k][i] - of_row.mean) * of_row.scale;
        dweight[k][i] += g[k][i] * n[k][i];
        dbias[k][i] += g[k][i];
        g[k][i] *= w[i];
        means[0] += g[k][i];
        means[1] += g[k][i] * n[k][i];
      }
    }
    sum_over_block(means);
    for (float& mean : means) mean /= static_cast<float>(num_columns);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int c = column_of(k);
      if (c >= num_columns) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        g[k][i] = skipped[k][i] + of_row.scale * (g[k][i] - means[0] - n[k][i] * means[1]);
      write(dx + row + c, g[k]);
    }
  }
  float* part = parts + static_cast<std::int64_t>(blockIdx.x) * 2 * num_columns;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int c = column_of(k);
    if (c >= num_columns) continue;
    write(part + c, dweight[k]);
    write(part + num_columns + c, dbias[k]);
  }
}

// ---- GELU: 0.5 x (1 + tanh(u)), which is x / (1 + exp(-2u)), with 2u = x (kLinear + kCubic x²) ----

constexpr float kLinear = 2 * 0.7978845608f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f * kLinear;

// 1 / (1 + exp(-2u)): a GPU has an instruction for powers of 2.
__device__ float gate_of(float x) {
  constexpr float kLog2OfE = 1.4426950409f;
  return __fdividef(1.0f, 1.0f + exp2f(x * fmaf(-kLog2OfE * kCubic, x * x, -kLog2OfE * kLinear)));
}
__device__ float slope_of(float x) {
  const float gate = gate_of(x);
  return fmaf(fmaf(-gate, gate, gate), x * fmaf(3 * kCubic, x * x, kLinear), gate);
}

template <class Number>
__global__ void bias_gelu_kernel(const Number* x, const Number* bias, std::int64_t num_vectors,
                                 int vectors_of_row, Number* y) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       v < num_vectors; v += stride) {
    float numbers[kVector], b[kVector];
    read(x + v * kVector, numbers);
    read(bias + v % vectors_of_row * kVector, b);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float sum = numbers[i] + b[i];
      numbers[i] = sum * gate_of(sum);
    }
    write(y + v * kVector, numbers);
  }
}

// ---- Sums over rows: of the rows of each block, and then of all blocks ----------------------------

constexpr int kSumThreads = 128;  // each takes the columns of one vector

// The fewer the columns, the more blocks it takes to keep a GPU busy.
constexpr int rows_of_part(std::int64_t num_columns) {
  return num_columns <= kSumThreads * kVector ? 16 : 48;
}

// Sums dy; or, through the GELU, dx = dy · slope(x + bias), which it also writes. With 8 blocks at
// once on a multiprocessor, which limits the registers, enough numbers are on their way.
template <class Number, bool kThroughGelu>
__global__ void __launch_bounds__(kSumThreads, /*minBlocksPerMultiprocessor=*/8)
    sum_rows_kernel(const Number* x, const Number* bias, const Number* dy, int num_rows,
                    int num_columns, Number* dx, float* parts) {
  const int blocks_of_row = (num_columns - 1) / (kSumThreads * kVector) + 1;
  const int block = static_cast<int>(blockIdx.x), part = block / blocks_of_row;
  const int c = (block % blocks_of_row * kSumThreads + static_cast<int>(threadIdx.x)) * kVector;
  if (c >= num_columns) return;
  const int rows = rows_of_part(num_columns), end = min(num_rows, (part + 1) * rows);
  constexpr int kGroup = kThroughGelu ? 2 : 4;  // rows that a thread reads before it computes
  float b[kVector] = {}, sums[kVector] = {};
  if constexpr (kThroughGelu) read(bias + c, b);
  for (int begin = part * rows; begin < end; begin += kGroup) {
    Vector<Number> xs[kGroup], d[kGroup];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      if (begin + k >= end) continue;
      const std::int64_t at = static_cast<std::int64_t>(begin + k) * num_columns + c;
      d[k] = read(dy + at);
      if constexpr (kThroughGelu) xs[k] = read(x + at);
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      if (begin + k >= end) continue;
      float numbers[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        numbers[i] = static_cast<float>(d[k].values[i]);
        if constexpr (kThroughGelu)
          numbers[i] *= slope_of(static_cast<float>(xs[k].values[i]) + b[i]);
        sums[i] += numbers[i];
      }
      if constexpr (kThroughGelu)
        write(dx + static_cast<std::int64_t>(begin + k) * num_columns + c, numbers);
    }
  }
  write(parts + static_cast<std::int64_t>(part) * num_columns + c, sums);
}

// A block takes 32 columns. Each of its warps adds up every 32nd part; then one warp adds up those
// of all warps, in order.
constexpr int kWarps = 32;
__global__ void add_parts_kernel(const float* parts, int num_parts, int num_columns, float* sums) {
  __shared__ float of_warp[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
#pragma unroll 8
  for (int p = warp; p < (c < num_columns ? num_parts : 0); p += kWarps)
    sum += parts[static_cast<std::int64_t>(p) * num_columns + c];
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= num_columns) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += of_warp[w][lane];
  sums[c] = total;
}

// ---- Launches -------------------------------------------------------------------------------------

std::int64_t parts_of(std::int64_t num_rows, std::int64_t rows_of_part) {
  return (num_rows + rows_of_part - 1) / rows_of_part;
}

constexpr std::int64_t kMostColumns = 1 << 24;

// False if there is nothing to do: a grid has at least one block.
bool has_numbers(const Rows& rows, std::int64_t most_columns) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() / 2;  // no sum overflows
  check(
      rows.num_rows <= kMost && rows.num_columns <= most_columns && rows.num_columns % kVector == 0,
      "a fused kernel: ", rows.num_rows, " x ", rows.num_columns, " numbers; it takes up to ",
      kMost, " rows and up to ", most_columns, " columns, a multiple of ", kVector);
  return rows.num_rows > 0 && rows.num_columns > 0;
}

template <class Body>
void with_16_bit_type(c10::ScalarType type, const Body& body) {
  if (type == c10::ScalarType::BFloat16) return body(c10::BFloat16());
  check(type == c10::ScalarType::Half, "a fused kernel takes bf16 or fp16, not ", type);
  body(c10::Half());
}

// Calls body(Number(), std::integral_constant<int, kVectors>()), the vectors of a row for each thread.
template <class Body>
void with_norm_types(const Rows& rows, const Body& body) {
  static_assert(kMostNormColumns == 2 * kNormThreads * kVector);
  with_16_bit_type(rows.type, [&](auto number) {
    if (rows.num_columns <= kMostNormColumns / 2)
      return body(number, std::integral_constant<int, 1>());
    body(number, std::integral_constant<int, 2>());
  });
}

}  // namespace

std::int64_t num_norm_parts(std::int64_t num_rows) {
  return parts_of(num_rows, kNormRows);
}
std::int64_t num_parts(const Rows& rows) {
  return parts_of(rows.num_rows, rows_of_part(rows.num_columns));
}

void add_layer_norm(const Rows& rows, const void* x, const void* branch, const void* weight,
                    const void* bias, float epsilon, void* sum, void* normed,
                    RowStatistics* statistics, cudaStream_t stream) {
  if (!has_numbers(rows, kMostNormColumns)) return;
  const auto num_blocks = static_cast<unsigned>(rows.num_rows);
  with_norm_types(rows, [&](auto number, auto count) {
    using Number = decltype(number);
    constexpr int kVectors = decltype(count)::value;
    add_layer_norm_kernel<Number, kVectors><<<num_blocks, kNormThreads, 0, stream>>>(
        static_cast<const Number*>(x), static_cast<const Number*>(branch),
        static_cast<const Number*>(weight), static_cast<const Number*>(bias), epsilon,
        static_cast<int>(rows.num_columns), static_cast<Number*>(sum), static_cast<Number*>(normed),
        statistics);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void add_layer_norm_backward(const Rows& rows, const void* sum, const RowStatistics* statistics,
                             const void* weight, const void* dnormed, const void* dsum, void* dx,
                             float* parts, cudaStream_t stream) {
  if (!has_numbers(rows, kMostNormColumns)) return;
  const auto num_blocks = static_cast<unsigned>(num_norm_parts(rows.num_rows));
  with_norm_types(rows, [&](auto number, auto count) {
    using Number = decltype(number);
    constexpr int kVectors = decltype(count)::value;
    add_layer_norm_backward_kernel<Number, kVectors><<<num_blocks, kNormThreads, 0, stream>>>(
        static_cast<const Number*>(sum), statistics, static_cast<const Number*>(weight),
        static_cast<const Number*>(dnormed), static_cast<const Number*>(dsum),
        static_cast<int>(rows.num_rows), static_cast<int>(rows.num_columns),
        static_cast<Number*>(dx), parts);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void bias_gelu(const Rows& rows, const void* x, const void* bias, void* y, cudaStream_t stream) {
  if (!has_numbers(rows, kMostColumns)) return;
  const std::int64_t num_vectors = rows.num_rows * rows.num_columns / kVector;
  with_16_bit_type(rows.type, [&](auto number) {
    using Number = decltype(number);
    bias_gelu_kernel<Number><<<num_blocks_for(num_vectors), kThreadsPerBlock, 0, stream>>>(
        static_cast<const Number*>(x), static_cast<const Number*>(bias), num_vectors,
        static_cast<int>(rows.num_columns / kVector), static_cast<Number*>(y));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

namespace {

template <bool kThroughGelu>
void start_sum_rows(const Rows& rows, const void* x, const void* bias, const void* dy, void* dx,
                    float* parts, cudaStream_t stream) {
  if (!has_numbers(rows, kMostColumns)) return;
  const std::int64_t blocks_of_row = parts_of(rows.num_columns, kSumThreads * kVector);
  const auto num_blocks = static_cast<unsigned>(num_parts(rows) * blocks_of_row);
  with_16_bit_type(rows.type, [&](auto number) {
    using Number = decltype(number);
    sum_rows_kernel<Number, kThroughGelu><<<num_blocks, kSumThreads, 0, stream>>>(
        static_cast<const Number*>(x), static_cast<const Number*>(bias),
        static_cast<const Number*>(dy), static_cast<int>(rows.num_rows),
        static_cast<int>(rows.num_columns), static_cast<Number*>(dx), parts);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void bias_gelu_backward(const Rows& rows, const void* x, const void* bias, const void* dy, void* dx,
                        float* parts, cudaStream_t stream) {
  start_sum_rows<true>(rows, x, bias, dy, dx, parts, stream);
}

void sum_rows(const Rows& rows, const void* values, float* parts, cudaStream_t stream) {
  start_sum_rows<false>(rows, nullptr, nullptr, values, nullptr, parts, stream);
}

void add_parts(const float* parts, std::int64_t num_parts, std::int64_t num_columns, float* sums,
               cudaStream_t stream) {
  if (num_columns == 0) return;
  const auto num_blocks = static_cast<unsigned>(parts_of(num_columns, kWarp));
  add_parts_kernel<<<num_blocks, kWarps * kWarp, 0, stream>>>(parts, static_cast<int>(num_parts),
                                                              static_cast<int>(num_columns), sums);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ladder::kernels
