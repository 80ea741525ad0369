// The kernels of on_gpu.hpp, on a GPU.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "common/core/torch_types.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/optim/optimizer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/fused_adamw.hpp"

namespace ladder {
namespace {

at::Tensor noise(std::int64_t numel, at::ScalarType type = at::kFloat) {
  return at::randn({numel}).to(type).to(at::kCUDA);
}

TEST(AdamWKernel, IsTheOneOfLibtorch) {
  constexpr AdamWStep kStep = {1e-2, 0.9, 0.95, 1e-8, 0.1, 3, /*grad_factor=*/0.37};
  at::manual_seed(7);
  for (const at::ScalarType grad_type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t numel : {0, 4, 1024, 1 << 20}) {
      const at::Tensor params = noise(numel), grads = noise(numel, grad_type);
      const at::Tensor m = noise(numel).mul_(0.1), v = noise(numel).square_();
      const at::Tensor rounded = noise(numel, at::kBFloat16);
      const at::Tensor wanted = params.clone(), wanted_m = m.clone(), wanted_v = v.clone();
      adamw_on_gpu({params}, {grads}, {m}, {v}, {rounded}, kStep);
      if (numel == 0) continue;
      fused_adamw(wanted, grads, wanted_m, wanted_v, kStep);
      EXPECT_TRUE(close_in_norm(params, wanted, 1e-6)) << grad_type << " " << numel;
      EXPECT_TRUE(close_in_norm(m, wanted_m, 1e-6));
      EXPECT_TRUE(close_in_norm(v, wanted_v, 1e-6));
      EXPECT_TRUE(bits_equal(rounded.cpu(), params.to(at::kBFloat16).cpu()));
    }
  }
}

TEST(BlockSumsKernel, HasTheBitsOfTheCpu) {
  at::manual_seed(8);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> on_cpu, on_gpu;
    for (const std::int64_t numel : {1, 15, 1024, 1025, 100'000}) {
      on_cpu.push_back(at::randn({numel}).to(type));
      on_gpu.push_back(on_cpu.back().to(at::kCUDA));
    }
    EXPECT_EQ(block_sums(on_gpu), block_sums(on_cpu)) << type;
  }
}

// The whole optimizer, on the same gradients as on the CPU.
TEST(OptimizerOnGpu, FollowsTheCpu) {
  at::manual_seed(9);
  const std::vector<Unit> shapes = {{"unit", {{"w", at::randn({33, 64})}, {"b", at::randn({64})}}}};
  for (const Precision& precision :
       {Precision{}, Precision{NumberFormat::kBf16, NumberFormat::kFp32},
        Precision{NumberFormat::kBf16, NumberFormat::kBf16}}) {
    FlatLayout layout = plan_flat_layout(shapes);
    layout.precision = precision;
    layout.numel = 33 * 64 + 64;
    std::vector<at::Tensor> results;
    const at::Tensor start = at::randn({layout.numel}), gradient = at::randn({layout.numel});
    for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA)}) {
      layout.device = device_of(device);
      const at::Tensor params = start.to(to_torch(precision.params)).to(device).clone();
      const at::Tensor grads = gradient.to(to_torch(precision.grads)).to(device);
      Optimizer optimizer({{params, grads, 0, true}}, layout.numel, layout, {});
      for (int step = 0; step < 3; ++step) optimizer.step(1e-2);
      results.push_back(params.cpu().to(at::kFloat));
    }
    EXPECT_TRUE(close_in_norm(results[1], results[0], precision.has_16_bit_params() ? 1e-3 : 1e-6));
  }
}

}  // namespace
}  // namespace ladder
