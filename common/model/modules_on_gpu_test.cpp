// What the modules do otherwise on a GPU than on the CPU: they add up gradients in fp32, and place
// logits in aligned rows.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "common/model/modules.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

// A leaf on the GPU in bf16, whose gradient is stored in fp32.
at::Tensor bf16_leaf(at::IntArrayRef shape) {
  at::Tensor leaf = at::randn(shape).to(at::kBFloat16).to(at::kCUDA).set_requires_grad(true);
  leaf.set_grad_dtype(at::kFloat);
  return leaf;
}

at::Tensor rounded_noise(at::IntArrayRef shape) {
  return at::randn(shape).to(at::kBFloat16).to(at::kCUDA);
}

// One token, many times: in bf16 the sum of ones would stop at 256. ATen takes one kernel for up to
// 3072 tokens, and another for more.
TEST(ModulesOnGpu, AFrequentTokenAddsUpInFp32) {
  for (const std::int64_t num_tokens : {300, 3072, 5000}) {
    const at::Tensor table = bf16_leaf({7, 64});
    const at::Tensor tokens = at::full({num_tokens}, 3, at::kLong).to(at::kCUDA);
    look_up(table, tokens).backward(at::ones({num_tokens, 64}, table.options()));
    EXPECT_EQ(table.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(table.grad()[3].eq(static_cast<double>(num_tokens)).all().item<bool>());
  }
}

// Rounded to bf16 it would be off by about 2e-3.
TEST(ModulesOnGpu, WeightGradientsAreNotRounded) {
  at::manual_seed(3);
  const at::Tensor x = rounded_noise({1000, 64}), dy = rounded_noise({1000, 128});
  const Linear linear = {bf16_leaf({64, 128}), bf16_leaf({128})};
  linear(x.detach().requires_grad_()).backward(dy);
  const at::Tensor wide_x = x.to(at::kDouble), wide_dy = dy.to(at::kDouble);
  EXPECT_TRUE(close_in_norm(linear.weight.grad(), wide_x.t().mm(wide_dy), 1e-5));
  EXPECT_TRUE(close_in_norm(linear.bias.grad(), wide_dy.sum(0), 1e-5));
}

// Each row of logits starts where it can be loaded 64 elements at a time; values and gradients are
// those of rows without gaps.
TEST(ModulesOnGpu, LogitsStandInAlignedRows) {
  at::manual_seed(4);
  for (const std::int64_t vocabulary : {1, 64, 257}) {
    const at::Tensor x = rounded_noise({2, 30, 64}).requires_grad_();
    const at::Tensor table = bf16_leaf({vocabulary, 64});
    const at::Tensor logits = project(x, table);
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 30, vocabulary}));
    EXPECT_EQ(logits.stride(1), (vocabulary + 63) / 64 * 64);
    const at::Tensor dy = rounded_noise({2, 30, vocabulary});
    logits.backward(dy);
    const at::Tensor wide_dy = dy.to(at::kDouble).flatten(0, 1);
    const at::Tensor wide_x = x.detach().to(at::kDouble).flatten(0, 1);
    const at::Tensor wide_table = table.detach().to(at::kDouble);
    EXPECT_TRUE(close_in_norm(logits.detach().flatten(0, 1), wide_x.mm(wide_table.t()), 3e-3));
    EXPECT_TRUE(close_in_norm(x.grad().flatten(0, 1), wide_dy.mm(wide_table), 3e-3));
    EXPECT_TRUE(close_in_norm(table.grad(), wide_dy.t().mm(wide_x), 1e-5));
  }
}

// A branch of a block: norm, product with GELU, and the addition; then the next norm. Of C channels
// the kernels take the first two; the others are what ATen computes.
at::Tensor branch(const std::vector<at::Tensor>& leaves, bool is_wide) {
  const auto at_ = [&](std::size_t i) { return is_wide ? leaves[i].to(at::kDouble) : leaves[i]; };
  const at::Tensor x = at_(0);
  if (is_wide) {
    const auto norm = [&](const at::Tensor& y, std::size_t i) {
      return at::layer_norm(y, {y.size(-1)}, at_(i), at_(i + 1), 1e-5);
    };
    const at::Tensor y = x + at::gelu(at::addmm(at_(4), norm(x, 1), at_(3)), "tanh");
    return y + norm(y, 5);
  }
  const LayerNorm ln_1 = {leaves[1], leaves[2]}, ln_2 = {leaves[5], leaves[6]};
  const auto [skip, n] = ln_1.fork(x);
  const auto [y, m] = ln_2.fork(skip, gelu(Linear{leaves[3], leaves[4]}, n));
  return y + m;
}

TEST(ModulesOnGpu, FusedKernelsComputeWhatAtenDoesAndTheSameBitsInEveryRun) {
  at::manual_seed(5);
  for (const std::int64_t C : {64, 768, 2056, 12}) {
    SCOPED_TRACE(C);
    const std::vector<at::Tensor> leaves = {rounded_noise({300, C}).requires_grad_(),
                                            bf16_leaf({C}),
                                            bf16_leaf({C}),
                                            bf16_leaf({C, C}),
                                            bf16_leaf({C}),
                                            bf16_leaf({C}),
                                            bf16_leaf({C})};
    const at::Tensor dy = rounded_noise({300, C});
    const auto differentiate = [&](bool is_wide) {
      const at::Tensor y = branch(leaves, is_wide);
      std::vector<at::Tensor> all = torch::autograd::grad({y}, leaves, {dy.to(y.scalar_type())});
      all.push_back(y.detach());
      return all;
    };
    const auto got = differentiate(false), again = differentiate(false),
               wanted = differentiate(true);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(close_in_norm(got[i], wanted[i], 2e-2)) << "tensor " << i;
      EXPECT_TRUE(bits_equal(got[i].cpu(), again[i].cpu())) << "tensor " << i;
    }
  }
}

}  // namespace
}  // namespace ladder
