// The memory ledger's cap, on a GPU.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

at::Tensor bytes_on_gpu(std::int64_t numel) {
  return at::empty({numel}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
}

TEST(GpuMemory, ACapIsOnTheCurrentGpuAlone) {
  install_memory_ledger(at::kCUDA);
  use_cuda_device(0);
  set_memory_cap(kGib);
  EXPECT_THROW(bytes_on_gpu(2 * kGib), c10::OutOfMemoryError);
  set_memory_cap(0);
  EXPECT_EQ(bytes_on_gpu(2 * kGib).numel(), 2 * kGib);
  for (int other = 1; other < num_cuda_devices(); ++other) {
    EXPECT_FALSE(c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(other)))
        << "a context takes 500 MB of GPU " << other;
  }
}

}  // namespace
}  // namespace ladder
