// The kernels of common/*.cu, run on the CPU by simt.hpp, against ATen. The tests with label gpu
// run them where they belong.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/rank_order_fold.hpp"
#include "common/model/cross_entropy_kernels.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/optim/update_kernels.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

constexpr at::ScalarType kFloatTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor noise(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::randn(shape).to(type);
}

class KernelsOnCpu : public ::testing::Test {
 protected:
  KernelsOnCpu() { at::set_num_threads(1); }  // of libtorch
};

kernels::AdamWTensor tensor_of(const at::Tensor& params, const at::Tensor& grads,
                               const at::Tensor& m, const at::Tensor& v,
                               const at::Tensor& rounded = {}) {
  return {params.mutable_data_ptr<float>(),
          grads.const_data_ptr(),
          m.mutable_data_ptr<float>(),
          v.mutable_data_ptr<float>(),
          rounded.defined() ? rounded.mutable_data_ptr() : nullptr,
          params.numel()};
}

// Fewer elements than a block has threads, and more than the grid has.
TEST_F(KernelsOnCpu, AdamWIsTheAtenVersion) {
  constexpr AdamWStep kStep = {1e-2, 0.9, 0.95, 1e-8, 0.1, 3, /*grad_factor=*/0.37};
  at::manual_seed(7);
  for (const at::ScalarType grad_type : kFloatTypes) {
    for (const std::int64_t numel : {4, 64, 4 * 700}) {
      SCOPED_TRACE(::testing::Message() << grad_type << " " << numel);
      const at::Tensor params = noise(numel), grads = noise(numel, grad_type);
      const at::Tensor m = noise(numel).mul_(0.1), v = noise(numel).square_();
      const at::Tensor rounded = noise(numel, at::kBFloat16);
      const at::Tensor wanted = params.clone(), wanted_m = m.clone(), wanted_v = v.clone();
      const AdamWFactors f = factors_of(kStep);
      kernels::adamw({tensor_of(params, grads, m, v, rounded)}, grad_type, at::kBFloat16, f,
                     nullptr);
      adamw_with_aten(wanted, grads, wanted_m, wanted_v, {}, kStep);
      EXPECT_TRUE(close_in_norm(params, wanted, 1e-6));
      EXPECT_TRUE(close_in_norm(m, wanted_m, 1e-6));
      EXPECT_TRUE(close_in_norm(v, wanted_v, 1e-6));
      EXPECT_TRUE(bits_equal(rounded, params.to(at::kBFloat16)));
      kernels::adamw({tensor_of(params, grads, m, v)}, grad_type, at::kFloat, f, nullptr);
      EXPECT_FALSE(bits_equal(rounded, params.to(at::kBFloat16)));  // params only
    }
  }
}

// More tensors than one launch takes, empty ones among them, some longer than the whole grid.
TEST_F(KernelsOnCpu, AdamWUpdatesManyTensorsAsItDoesEach) {
  const AdamWFactors f = factors_of({1e-2, 0.9, 0.95, 1e-8, 0.1, 3});
  at::manual_seed(12);
  std::vector<at::Tensor> results, wanted;
  std::vector<kernels::AdamWTensor> together;
  const at::Tensor grads = noise(4 * 700);
  for (int i = 0; i < 150; ++i) {
    const std::int64_t numel = i % 50 == 7 ? 4 * 700 : 4 * (i % 5);
    const at::Tensor start = noise({3, numel}).square_(), alone = start.clone();
    results.push_back(start);
    wanted.push_back(alone);
    together.push_back(tensor_of(start[0], grads.narrow(0, 0, numel), start[1], start[2]));
    kernels::adamw({tensor_of(alone[0], grads.narrow(0, 0, numel), alone[1], alone[2])}, at::kFloat,
                   at::kFloat, f, nullptr);
  }
  kernels::adamw(together, at::kFloat, at::kFloat, f, nullptr);
  for (std::size_t i = 0; i < results.size(); ++i)
    EXPECT_TRUE(bits_equal(results[i], wanted[i])) << "tensor " << i;
}

// Gradients of a loss scaled by 2^16, which fp16 could not hold without that, against fp32 ones.
TEST_F(KernelsOnCpu, AdamWUnscalesInFp32) {
  constexpr std::int64_t kNumel = 64;
  at::manual_seed(11);
  const at::Tensor start = noise(kNumel), scaled = noise(kNumel, at::kHalf).mul_(1e-2);
  const auto updated = [&](const at::Tensor& grads, double grad_factor) {
    const AdamWStep step = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1, grad_factor};
    const at::Tensor params = start.clone(), m = at::zeros({kNumel}), v = at::zeros({kNumel});
    kernels::adamw({tensor_of(params, grads, m, v)}, grads.scalar_type(), at::kFloat,
                   factors_of(step), nullptr);
    return at::cat({params, m, v});
  };
  constexpr double kClip = 1.0 / 1024;
  EXPECT_TRUE(bits_equal(updated(scaled, kClip * 0x1p-16),
                         updated(scaled.to(at::kFloat).mul_(kClip * 0x1p-16), 1)));
}

// Of whole blocks, of less than one, and of more than the grid has groups of threads.
TEST_F(KernelsOnCpu, BlockSumsHaveTheBitsOfNorm) {
  at::manual_seed(8);
  for (const at::ScalarType type : kFloatTypes) {
    for (const std::int64_t numel : {1, 15, 1024, 1025, 40'000}) {
      const at::Tensor values = noise(numel, type);
      const std::vector<double> wanted = block_sums({values});
      std::vector<double> sums(wanted.size());
      kernels::block_sums(values.const_data_ptr(), type, sums.data(), numel, nullptr);
      EXPECT_EQ(sums, wanted) << type << " " << numel;
    }
  }
}

// Into memory of its own, into a piece, and of more pieces than one pass takes; more elements than
// the grid has threads.
TEST_F(KernelsOnCpu, FoldHasTheBitsOfTheFoldOnTheCpu) {
  at::manual_seed(9);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kInt}) {
    for (const std::int64_t num_ranks : {1, 3, 258}) {
      for (const bool is_in_place : {false, true}) {
        SCOPED_TRACE(::testing::Message() << type << ", " << num_ranks << " ranks");
        const std::int64_t numel = 600;
        const at::Tensor pieces = noise({num_ranks, numel}).mul_(100).to(type);
        const at::Tensor wanted = at::empty({numel}, type);
        std::vector<std::byte*> read;
        for (std::int64_t r = 0; r < num_ranks; ++r) read.push_back(data_of(pieces[r]));
        fold_in_rank_order(read, /*own=*/0, data_of(wanted), type, numel);
        const at::Tensor target = is_in_place ? pieces[0] : at::empty({numel}, type);
        fold_on_gpu(read, data_of(target), type, numel, nullptr);
        EXPECT_TRUE(bits_equal(target, wanted));
      }
    }
  }
}

// Rows of less than a round of the block, of a round exactly, and of several; one is ignored. They
// are spread over more than exp() of fp32 can hold.
TEST_F(KernelsOnCpu, CrossEntropyIsTheAtenVersion) {
  at::manual_seed(10);
  constexpr std::int64_t kIgnored = -100, kRows = 3;
  for (const at::ScalarType type : kFloatTypes) {
    for (const std::int64_t num_classes : {1, 7, 2048, 5001}) {
      SCOPED_TRACE(::testing::Message() << type << " " << num_classes);
      const std::int64_t row_stride = num_classes + 3;  // nobody writes between rows
      const at::Tensor logits =
          noise({kRows, row_stride}).mul_(30).to(type).narrow(1, 0, num_classes);
      at::Tensor targets = at::randint(num_classes, {kRows}, at::kLong);
      targets[1] = kIgnored;
      const at::Tensor losses = at::empty({kRows}), upstream = at::full({}, 0.37);
      std::vector<SoftmaxSum> sums(kRows);
      const at::Tensor buffer = at::full({kRows, row_stride}, 7, type);
      const at::Tensor gradients = buffer.narrow(1, 0, num_classes);
      const kernels::LogitRows rows = {.logits = logits.const_data_ptr(),
                                       .type = type,
                                       .num_rows = kRows,
                                       .num_classes = num_classes,
                                       .row_stride = row_stride,
                                       .targets = targets.const_data_ptr<std::int64_t>(),
                                       .ignored_target = kIgnored};
      kernels::cross_entropy(rows, losses.mutable_data_ptr<float>(), sums.data(), nullptr);
      kernels::cross_entropy_backward(rows, sums.data(), upstream.const_data_ptr<float>(),
                                      gradients.mutable_data_ptr(), nullptr);

      const at::Tensor wide = logits.to(at::kFloat).set_requires_grad(true);
      const at::Tensor wanted =
          at::cross_entropy_loss(wide, targets, /*weight=*/{}, at::Reduction::None, kIgnored);
      wanted.sum().backward(upstream);
      EXPECT_TRUE(close_in_norm(losses, wanted.detach(), 2e-6));
      EXPECT_TRUE(close_in_norm(gradients.to(at::kFloat), wide.grad().to(type).to(at::kFloat),
                                type == at::kFloat ? 2e-6 : 1e-3));
      EXPECT_TRUE(bits_equal(gradients[1], at::zeros({num_classes}, type)));
      EXPECT_TRUE(bits_equal(buffer.narrow(1, num_classes, 3), at::full({kRows, 3}, 7, type)));
    }
  }
}

}  // namespace
}  // namespace ladder
