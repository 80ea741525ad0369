// CUDA's threads on the CPU, slowly: what a .cu file's kernels need in order to run without a GPU.
//
// The blocks of a grid run one after the other. The threads of a block are threads of this process,
// so sanitizers see what they read and write, and a thread that does not wait where it should is a
// data race. This file stands for nvcc's built-ins; CMakeLists.txt turns each launch
// kernel<<<grid, block, 0, stream>>>(…) into simt::launch(kernel, grid, block, 0, stream)(…).
//
// It computes in the order in which the kernels compute. Whether a GPU rounds alike, how fast it
// is, and what its memory allows, it cannot tell.
#pragma once

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static  // blocks do not overlap, so one is enough
#define __launch_bounds__(...)

namespace simt {

struct Index {
  unsigned x = 0;
};

constexpr unsigned kWarp = 32;

// What the threads of the running block share.
class Block {
 public:
  explicit Block(unsigned num_threads)
      : all_(static_cast<std::ptrdiff_t>(num_threads)), slots_(num_threads) {
    for (unsigned first = 0; first < num_threads; first += kWarp)
      warps_.push_back(std::make_unique<std::barrier<>>(kWarp));
    for (unsigned first = 0; first < num_threads; first += kWarp / 2)
      half_warps_.push_back(std::make_unique<std::barrier<>>(kWarp / 2));
  }

  void wait() { all_.arrive_and_wait(); }
  void leave() { all_.arrive_and_drop(); }  // a thread that has returned holds nobody up

  // What another thread holds, of the same so many neighbors: a warp or half of one. All call it.
  template <class Value>
  Value shuffle(Value value, unsigned thread, unsigned other, unsigned width) {
    static_assert(sizeof(Value) <= sizeof(std::uint64_t));
    if (width != kWarp && width != kWarp / 2) std::abort();
    std::barrier<>& group = *(width == kWarp ? warps_ : half_warps_)[thread / width];
    std::memcpy(&slots_[thread], &value, sizeof value);
    group.arrive_and_wait();
    std::memcpy(&value, &slots_[thread / width * width + other], sizeof value);
    group.arrive_and_wait();  // before the next one is written
    return value;
  }

 private:
  std::barrier<> all_;
  std::vector<std::unique_ptr<std::barrier<>>> warps_, half_warps_;
  std::vector<std::uint64_t> slots_;
};

inline thread_local Block* block = nullptr;

}  // namespace simt

inline thread_local simt::Index threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() {
  simt::block->wait();
}
template <class Value>
Value __shfl_sync(unsigned /*members*/, Value value, int source, int width) {
  const auto all = static_cast<unsigned>(width);
  return simt::block->shuffle(value, threadIdx.x, static_cast<unsigned>(source), all);
}
template <class Value>
Value __shfl_xor_sync(unsigned /*members*/, Value value, int distance, int width) {
  const auto all = static_cast<unsigned>(width), bits = static_cast<unsigned>(distance);
  return simt::block->shuffle(value, threadIdx.x, threadIdx.x % all ^ bits, all);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
using std::min;

namespace simt {

// The kernel on a grid, as a function of its arguments.
template <class Kernel>
auto launch(Kernel kernel, unsigned num_blocks, unsigned num_threads, int /*shared_bytes*/,
            void* /*stream*/) {
  return [=](auto... arguments) {
    std::vector<std::unique_ptr<Block>> blocks;
    for (unsigned b = 0; b < num_blocks; ++b)
      blocks.push_back(std::make_unique<Block>(num_threads));
    std::barrier between_blocks(static_cast<std::ptrdiff_t>(num_threads));
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < num_threads; ++t) {
      threads.emplace_back([&, t] {
        threadIdx.x = t;
        blockDim.x = num_threads;
        gridDim.x = num_blocks;
        for (unsigned b = 0; b < num_blocks; ++b) {
          block = blocks[b].get();
          blockIdx.x = b;
          kernel(arguments...);
          block->leave();
          between_blocks.arrive_and_wait();
        }
      });
    }
  };
}

}  // namespace simt
