// The ATen versions against the CPU's own, which any machine can do; the kernels against the ATen
// versions, where there is a GPU (label gpu).
#include "common/optim/on_gpu.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "common/optim/optimizer.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

struct AdamWTensors {
  AdamWTensors(std::int64_t numel, at::ScalarType grad_type, at::Device device = at::kCPU) {
    at::manual_seed(7);
    params = at::randn({numel}).to(device);
    grads = at::randn({numel}).to(grad_type).to(device);
    exp_avg = at::randn({numel}).mul_(0.1).to(device);
    exp_avg_sq = at::rand({numel}).mul_(0.1).to(device);
  }
  at::Tensor params, grads, exp_avg, exp_avg_sq;
};

constexpr AdamWStep kStep = {
    .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .t = 3};

TEST(AdamWWithAten, IsTheOneOfTheCpu) {
  AdamWTensors of_cpu(1024, at::kFloat), of_aten(1024, at::kFloat);
  const at::Tensor t = at::full({}, 3.0F);
  at::_fused_adamw_({of_cpu.params}, {of_cpu.grads}, {of_cpu.exp_avg}, {of_cpu.exp_avg_sq}, {}, {t},
                    kStep.learning_rate, kStep.beta1, kStep.beta2, kStep.weight_decay, kStep.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  adamw_with_aten(of_aten.params, of_aten.grads, of_aten.exp_avg, of_aten.exp_avg_sq, {}, kStep);
  EXPECT_TRUE(close_in_norm(of_aten.params, of_cpu.params, 1e-6));
  EXPECT_TRUE(close_in_norm(of_aten.exp_avg, of_cpu.exp_avg, 1e-6));
  EXPECT_TRUE(close_in_norm(of_aten.exp_avg_sq, of_cpu.exp_avg_sq, 1e-6));
}

TEST(AdamWWithAten, RoundsTheNewParameters) {
  AdamWTensors tensors(64, at::kBFloat16);
  const at::Tensor rounded = at::zeros({64}, at::kBFloat16);
  adamw_with_aten(tensors.params, tensors.grads, tensors.exp_avg, tensors.exp_avg_sq, rounded,
                  kStep);
  EXPECT_TRUE(bits_equal(rounded, tensors.params.to(at::kBFloat16)));
}

}  // namespace
}  // namespace ladder
