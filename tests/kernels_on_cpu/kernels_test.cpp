// The kernels of common/*.cu, run on the CPU by simt.hpp, against ATen. The tests with label gpu
// run them where they belong.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/check.hpp"
#include "common/model/cuda/cross_entropy_kernels.hpp"
#include "common/model/cuda/fused_kernels.hpp"
#include "common/optim/cuda/update_kernels.hpp"
#include "common/optim/exact_sums.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/fused_adamw.hpp"

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
TEST_F(KernelsOnCpu, AdamWIsTheOneOfLibtorch) {
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
      fused_adamw(wanted, grads, wanted_m, wanted_v, kStep);
      EXPECT_TRUE(close_in_norm(params, wanted, 1e-6));
      EXPECT_TRUE(close_in_norm(m, wanted_m, 1e-6));
      EXPECT_TRUE(close_in_norm(v, wanted_v, 1e-6));
      EXPECT_TRUE(bits_equal(rounded, params.to(at::kBFloat16)));
      kernels::adamw({tensor_of(params, grads, m, v)}, grad_type, at::kFloat, f, nullptr);
      EXPECT_FALSE(bits_equal(rounded, params.to(at::kBFloat16)));  // params only
    }
  }
}

// More tensors than one launch takes, empty ones among them, some longer than the whole grid; and
// the same in calls of fewer.
TEST_F(KernelsOnCpu, AdamWUpdatesManyTensorsAsItDoesFewer) {
  const AdamWFactors f = factors_of({1e-2, 0.9, 0.95, 1e-8, 0.1, 3});
  at::manual_seed(12);
  std::vector<at::Tensor> results, wanted;
  std::vector<kernels::AdamWTensor> together, fewer;
  const at::Tensor grads = noise(4 * 700);
  for (int i = 0; i < 150; ++i) {
    const std::int64_t numel = i % 50 == 7 ? 4 * 700 : 4 * (i % 5);
    const at::Tensor start = noise({3, numel}).square_(), alone = start.clone();
    results.push_back(start);
    wanted.push_back(alone);
    together.push_back(tensor_of(start[0], grads.narrow(0, 0, numel), start[1], start[2]));
    fewer.push_back(tensor_of(alone[0], grads.narrow(0, 0, numel), alone[1], alone[2]));
    if (i % 30 != 29) continue;
    kernels::adamw(fewer, at::kFloat, at::kFloat, f, nullptr);
    fewer.clear();
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

// The sums are of whole blocks, of less than one, and of more than the grid has groups of threads.
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

// Rounds from the start of a block, and from within one; more elements than the grid has threads,
// two of which are beyond the range or no number.
TEST_F(KernelsOnCpu, RoundToQuantaHasTheBitsOfExactSums) {
  at::manual_seed(15);
  for (const at::ScalarType type : kFloatTypes) {
    for (const auto& [offset, numel] :
         {std::pair{16, 1}, {1008, 1000}, {1024, 3000}, {2064, 5000}}) {
      SCOPED_TRACE(::testing::Message() << type << " " << offset << " " << numel);
      ExactSums sums(/*num_microbatches=*/3);
      sums.cover(plan_flat_layout({{"u", {{"a", noise(offset)}, {"b", noise(numel)}}}}));
      std::vector<double> learned;  // another quantum in each block
      for (std::int64_t i = 0; i < offset + numel; i += kNormBlock)
        learned.push_back(std::exp2(2 * std::ssize(learned)));
      sums.learn(learned);
      const at::Tensor values = noise(numel, type);
      if (numel > 1) values[numel / 2] = 1e4, values[numel - 1] = NAN;
      const at::Tensor wanted = sums.round("b", values.clone());
      const at::Tensor quanta = sums.quanta_by_unit()[0].tensor;
      kernels::round_to_quanta(values.mutable_data_ptr(), type, numel,
                               quanta.const_data_ptr<float>() + offset / kNormBlock,
                               offset % kNormBlock, /*share=*/0x1p21F, nullptr);
      EXPECT_TRUE(bits_equal(values, wanted));
      EXPECT_EQ(at::isinf(wanted).any().item<bool>(), numel > 1);
    }
  }
}

// Folds into memory of its own, into a piece, and more pieces than one pass takes, the own one being
// alone in the last pass; more elements than the grid has threads.
TEST_F(KernelsOnCpu, FoldHasTheBitsOfTheFoldOnTheCpu) {
  at::manual_seed(9);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kInt}) {
    for (const int num_ranks : {1, 2, 3, 4, 5, 6, 7, 11, 257, 515}) {
      for (const bool is_in_place : {false, true}) {
        SCOPED_TRACE(::testing::Message() << type << ", " << num_ranks << " ranks");
        const std::int64_t numel = 600;
        const int own = num_ranks > 256 ? num_ranks - 1 : num_ranks / 2;
        const at::Tensor pieces = noise({num_ranks, numel}).mul_(100).to(type);
        const at::Tensor on_cpu = pieces.clone(), before = pieces[own].clone();
        const auto rows = [&](const at::Tensor& of_all) {
          std::vector<std::byte*> data;
          for (int r = 0; r < num_ranks; ++r) data.push_back(data_of(of_all[r]));
          return data;
        };
        const at::Tensor wanted = at::empty({numel}, type);
        tree_fold(rows(on_cpu), own, data_of(wanted), type, numel);
        const at::Tensor target = is_in_place ? pieces[own] : at::empty({numel}, type);
        fold_on_gpu(rows(pieces), own, data_of(target), type, numel, nullptr);
        EXPECT_TRUE(bits_equal(target, wanted));
        EXPECT_TRUE(bits_equal(on_cpu[own], before));
        EXPECT_TRUE(is_in_place || bits_equal(pieces[own], before));
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

// Rows and columns of values for a fused kernel, and what it leaves in [2 * columns] or [columns].
kernels::Rows rows_of(const at::Tensor& x) {
  return {.type = x.scalar_type(), .num_rows = x.size(0), .num_columns = x.size(1)};
}
at::Tensor added_up(const at::Tensor& parts) {
  const at::Tensor sums = at::empty({parts.size(1)});
  kernels::add_parts(parts.const_data_ptr<float>(), parts.size(0), parts.size(1),
                     sums.mutable_data_ptr<float>(), nullptr);
  return sums;
}
at::Tensor wide_leaf(const at::Tensor& values) {
  return values.to(at::kDouble).set_requires_grad(true);
}

// Rounded to 16 bits once; sums over rows stay in fp32.
constexpr double kRounding = 5e-3, kNoRounding = 1e-5;

// Rows of one vector, of less than one for each thread, and of two; more rows than a block's part.
// With a branch and another gradient of the sum, or only x.
TEST_F(KernelsOnCpu, AddLayerNormIsTheAtenVersion) {
  struct Case {
    at::ScalarType type;
    std::int64_t num_rows, num_columns;
    bool is_fork;
  };
  at::manual_seed(13);
  for (const auto& [type, num_rows, num_columns, is_fork] :
       {Case{at::kBFloat16, 18, 136, true}, Case{at::kHalf, 2, 1032, true},
        Case{at::kBFloat16, 1, 8, false}}) {
    SCOPED_TRACE(::testing::Message() << type << " " << num_rows << " x " << num_columns);
    const auto some = [type = type](at::IntArrayRef shape) { return noise(shape, type); };
    const auto if_fork = [is_fork = is_fork](const at::Tensor& values) {
      return is_fork ? values.mutable_data_ptr() : nullptr;
    };
    const at::Tensor x = some({num_rows, num_columns}).add_(3), branch = some(x.sizes());
    const at::Tensor weight = some(num_columns), bias = some(num_columns);
    const at::Tensor dnormed = some(x.sizes()), dsum = some(x.sizes());
    const at::Tensor sum = is_fork ? at::empty_like(x) : x, normed = at::empty_like(x);
    const at::Tensor dx = at::empty_like(x);
    std::vector<kernels::RowStatistics> statistics(static_cast<std::size_t>(num_rows));
    const at::Tensor parts = at::empty({kernels::num_norm_parts(num_rows), 2 * num_columns});
    kernels::add_layer_norm(rows_of(x), x.const_data_ptr(), if_fork(branch),
                            weight.const_data_ptr(), bias.const_data_ptr(), 1e-5F, if_fork(sum),
                            normed.mutable_data_ptr(), statistics.data(), nullptr);
    kernels::add_layer_norm_backward(rows_of(x), sum.const_data_ptr(), statistics.data(),
                                     weight.const_data_ptr(), dnormed.const_data_ptr(),
                                     if_fork(dsum), dx.mutable_data_ptr(),
                                     parts.mutable_data_ptr<float>(), nullptr);

    EXPECT_TRUE(bits_equal(sum, is_fork ? x + branch : x));
    const at::Tensor wide = wide_leaf(sum), w = wide_leaf(weight), b = wide_leaf(bias);
    const at::Tensor wanted = at::layer_norm(wide, {num_columns}, w, b, 1e-5);
    wanted.backward(dnormed.to(at::kDouble));
    const at::Tensor wanted_dx = is_fork ? wide.grad() + dsum : wide.grad();
    EXPECT_TRUE(close_in_norm(normed.to(at::kDouble), wanted.detach(), kRounding));
    EXPECT_TRUE(close_in_norm(dx.to(at::kDouble), wanted_dx, kRounding));
    EXPECT_TRUE(
        close_in_norm(added_up(parts).to(at::kDouble), at::cat({w.grad(), b.grad()}), kNoRounding));
  }
}

// Columns of less than a block and of more than one; rows of less than a part, and of more parts
// than a warp adds up at once.
TEST_F(KernelsOnCpu, BiasGeluIsTheAtenVersion) {
  at::manual_seed(14);
  for (const auto& [type, num_rows, num_columns] :
       {std::tuple{at::kBFloat16, 1, 24}, {at::kHalf, 530, 8}, {at::kBFloat16, 65, 1032}}) {
    SCOPED_TRACE(::testing::Message() << type << " " << num_rows << " x " << num_columns);
    const at::Tensor x = noise({num_rows, num_columns}, type).mul_(3),
                     bias = noise(num_columns, type);
    const at::Tensor dy = noise(x.sizes(), type), y = at::empty_like(x), dx = at::empty_like(x);
    const at::Tensor parts = at::empty({kernels::num_parts(rows_of(x)), num_columns});
    const at::Tensor sums = at::empty_like(parts);
    kernels::bias_gelu(rows_of(x), x.const_data_ptr(), bias.const_data_ptr(), y.mutable_data_ptr(),
                       nullptr);
    kernels::bias_gelu_backward(rows_of(x), x.const_data_ptr(), bias.const_data_ptr(),
                                dy.const_data_ptr(), dx.mutable_data_ptr(),
                                parts.mutable_data_ptr<float>(), nullptr);
    kernels::sum_rows(rows_of(x), dy.const_data_ptr(), sums.mutable_data_ptr<float>(), nullptr);

    const at::Tensor wide = wide_leaf(x), b = wide_leaf(bias);
    const at::Tensor wanted = at::gelu(wide + b, "tanh");
    wanted.backward(dy.to(at::kDouble));
    EXPECT_TRUE(close_in_norm(y.to(at::kDouble), wanted.detach(), kRounding));
    EXPECT_TRUE(close_in_norm(dx.to(at::kDouble), wide.grad(), kRounding));
    EXPECT_TRUE(close_in_norm(added_up(parts).to(at::kDouble), b.grad(), kNoRounding));
    EXPECT_TRUE(
        close_in_norm(added_up(sums).to(at::kDouble), dy.to(at::kDouble).sum(0), kNoRounding));
  }
}

TEST_F(KernelsOnCpu, FusedKernelsRefuseOtherTypesAndShapes) {
  const at::Tensor x = noise({2, 8});
  EXPECT_THROW(kernels::sum_rows(rows_of(x), x.const_data_ptr(), nullptr, nullptr), CheckError);
  const at::Tensor odd = noise({2, 12}, at::kHalf);
  EXPECT_THROW(kernels::sum_rows(rows_of(odd), odd.const_data_ptr(), nullptr, nullptr), CheckError);
  const at::Tensor wide = noise({1, kernels::kMostNormColumns + 8}, at::kHalf);
  EXPECT_THROW(kernels::add_layer_norm(rows_of(wide), wide.const_data_ptr(), nullptr, nullptr,
                                       nullptr, 0, nullptr, nullptr, nullptr, nullptr),
               CheckError);
}

}  // namespace
}  // namespace ladder
