#include "common/core/cuda_probe.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

// The tensor is libtorch's, the kernel ours: with two CUDA runtimes in the process it would fail.
TEST(CudaProbe, FillsATensorOfLibtorch) {
  for (const std::int64_t numel : {0, 1, 255, 256, 257, 100'000}) {
    const at::Tensor tensor = at::full({numel + 1}, -1.0, at::TensorOptions().device(at::kCUDA));
    fill_with_indices(tensor.data_ptr<float>(), numel);
    at::Tensor expected = at::arange(numel + 1, at::TensorOptions().dtype(at::kFloat));
    expected[numel] = -1.0;  // behind its end nothing is written
    EXPECT_TRUE(tensor.cpu().equal(expected)) << numel << " elements";
  }
}

}  // namespace
}  // namespace ladder
