// The kernels of cross_entropy_on_gpu.hpp against the same in terms of ATen, on a GPU.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/cross_entropy_on_gpu.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kIgnored = -100;

at::Tensor with_aten(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(widened(logits).flatten(0, -2), targets.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kIgnored);
}
at::Tensor with_kernels(const at::Tensor& logits, const at::Tensor& targets) {
  return cross_entropy_sum_on_gpu(logits, targets, kIgnored);
}

struct Scored {
  at::Tensor loss, gradient;
};
template <class LossSum>
Scored score(const LossSum& loss_sum, const at::Tensor& logits, const at::Tensor& targets,
             double upstream = 1) {
  const at::Tensor leaf = logits.detach().set_requires_grad(true);
  const at::Tensor loss = loss_sum(leaf, targets);
  return {loss.detach(),
          torch::autograd::grad({loss}, {leaf}, {at::full_like(loss, upstream)}).front()};
}

at::Tensor some_logits(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::randn(shape).mul_(4).to(type).to(at::kCUDA);
}
// Every fifth one is ignored.
at::Tensor some_targets(at::IntArrayRef shape, std::int64_t num_classes) {
  at::Tensor targets = at::randint(num_classes, shape, at::kLong);
  targets.flatten().slice(0, 1, std::nullopt, 5).fill_(kIgnored);
  return targets.to(at::kCUDA);
}

// Both compute in fp32. Rounded to 16 bits, a gradient close to the middle between two numbers can
// go either way; those are few.
double gradient_tolerance(at::ScalarType type) {
  return is_16_bit(type) ? 1e-3 : 2e-6;
}

TEST(CrossEntropyKernel, IsTheAtenVersion) {
  at::manual_seed(5);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t num_classes : {1, 7, 1000, 2048, 50'257}) {
      for (const double upstream : {1.0, 0.37, -1024.0}) {
        SCOPED_TRACE(::testing::Message() << type << " " << num_classes << " " << upstream);
        const at::Tensor logits = some_logits({3, 11, num_classes}, type);
        const at::Tensor targets = some_targets({3, 11}, num_classes);
        const Scored got = score(with_kernels, logits, targets, upstream);
        const Scored wanted = score(with_aten, logits, targets, upstream);
        EXPECT_EQ(got.loss.scalar_type(), at::kFloat);
        EXPECT_EQ(got.loss.dim(), 0);
        EXPECT_EQ(got.gradient.scalar_type(), type);
        EXPECT_TRUE(close_in_norm(got.loss, wanted.loss, 2e-6));
        EXPECT_TRUE(close_in_norm(got.gradient, wanted.gradient, gradient_tolerance(type)));
      }
    }
  }
}

TEST(CrossEntropyKernel, IgnoredRowsHaveNoLossAndNoGradient) {
  at::manual_seed(6);
  const at::Tensor logits = some_logits({4, 1000}, at::kBFloat16);
  logits[2].fill_(std::numeric_limits<double>::quiet_NaN());  // nobody looks at it
  at::Tensor targets = at::full({4}, kIgnored, at::kLong).to(at::kCUDA);
  const Scored nothing = score(with_kernels, logits, targets);
  EXPECT_EQ(nothing.loss.item<float>(), 0);
  EXPECT_TRUE(bits_equal(nothing.gradient.cpu(), at::zeros({4, 1000}, at::kBFloat16)));

  targets[1] = 999;
  const Scored one = score(with_kernels, logits, targets);
  const Scored alone = score(with_kernels, logits.slice(0, 1, 2), targets.slice(0, 1, 2));
  EXPECT_TRUE(bits_equal(one.loss.cpu(), alone.loss.cpu()));
  EXPECT_TRUE(bits_equal(one.gradient[1].cpu(), alone.gradient[0].cpu()));
  EXPECT_EQ(one.gradient.count_nonzero().item<std::int64_t>(),
            alone.gradient.count_nonzero().item<std::int64_t>());
}

TEST(CrossEntropyKernel, TakesNoRows) {
  const at::Tensor targets = at::empty({0}, at::kLong).to(at::kCUDA);
  const Scored nothing = score(with_kernels, some_logits({0, 7}), targets);
  EXPECT_EQ(nothing.loss.item<float>(), 0);
  EXPECT_EQ(nothing.gradient.numel(), 0);
}

// A row has the same bits in every run, whichever rows are next to it, and wherever in memory it
// begins.
TEST(CrossEntropyKernel, BitsAreThoseOfTheRow) {
  at::manual_seed(7);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    constexpr std::int64_t kRows = 9, kClasses = 50'257;
    const at::Tensor logits = some_logits({kRows, kClasses}, type);
    const at::Tensor targets = some_targets({kRows}, kClasses);
    const Scored first = score(with_kernels, logits, targets, 0.37);
    const Scored again = score(with_kernels, logits, targets, 0.37);
    EXPECT_TRUE(bits_equal(again.loss.cpu(), first.loss.cpu()));
    EXPECT_TRUE(bits_equal(again.gradient.cpu(), first.gradient.cpu()));
    for (std::int64_t r = 0; r < kRows; ++r) {
      const Scored alone =
          score(with_kernels, logits.slice(0, r, r + 1).clone(), targets.slice(0, r, r + 1), 0.37);
      EXPECT_TRUE(bits_equal(alone.gradient[0].cpu(), first.gradient[r].cpu())) << "row " << r;
    }
  }
}

// A padded vocabulary, and rows in another order of memory.
TEST(CrossEntropyKernel, TakesAnyLayout) {
  at::manual_seed(8);
  const at::Tensor padded = some_logits({6, 64}, at::kBFloat16);
  const at::Tensor logits = padded.slice(1, 0, 50);
  const at::Tensor targets = some_targets({6}, 50);
  const Scored wanted = score(with_kernels, logits.contiguous(), targets);
  const Scored cut = score(with_kernels, logits, targets);
  const Scored turned = score(with_kernels, logits.t().contiguous().t(), targets);
  for (const Scored& scored : {cut, turned}) {
    EXPECT_TRUE(bits_equal(scored.loss.cpu(), wanted.loss.cpu()));
    EXPECT_TRUE(bits_equal(scored.gradient.contiguous().cpu(), wanted.gradient.cpu()));
  }
}

// Only work on the current stream, and the upstream gradient read on the GPU: a CUDA graph repeats
// both kernels on new numbers.
TEST(CrossEntropyKernel, CanBeCaptured) {
  at::manual_seed(9);
  const at::Tensor logits = some_logits({5, 1000}, at::kBFloat16);
  const at::Tensor targets = some_targets({5}, 1000);
  const at::Tensor leaf = logits.clone().set_requires_grad(true);
  const at::Tensor upstream = at::full({}, 1.0, leaf.options().dtype(at::kFloat));
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const auto run = [&] {
    const at::Tensor loss = with_kernels(leaf, targets);
    return Scored{loss.detach(), torch::autograd::grad({loss}, {leaf}, {upstream}).front()};
  };
  c10::cuda::device_synchronize();
  run();  // what is prepared once must not be part of the graph
  c10::cuda::device_synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const Scored repeated = run();
  graph.capture_end();
  for (const double factor : {1.0, 0.5}) {
    const at::Tensor numbers = logits * factor;
    {
      const at::NoGradGuard no_grad;
      at::Tensor(leaf).copy_(numbers);
      at::Tensor(upstream).fill_(factor);
    }
    graph.replay();
    const Scored wanted = score(with_kernels, numbers, targets, factor);
    EXPECT_TRUE(bits_equal(repeated.loss.cpu(), wanted.loss.cpu())) << factor;
    EXPECT_TRUE(bits_equal(repeated.gradient.cpu(), wanted.gradient.cpu())) << factor;
  }
}

TEST(CrossEntropyKernel, RefusesWhatItCannotRead) {
  const at::Tensor logits = some_logits({2, 3, 7});
  const at::Tensor targets = some_targets({2, 3}, 7);
  EXPECT_THROW(with_kernels(logits.to(at::kDouble), targets), CheckError);
  EXPECT_THROW(with_kernels(logits, targets.to(at::kInt)), CheckError);
  EXPECT_THROW(with_kernels(logits, targets.cpu()), CheckError);
  EXPECT_THROW(with_kernels(logits.cpu(), targets), CheckError);
  EXPECT_THROW(with_kernels(logits, targets.flatten()), CheckError);
}

}  // namespace
}  // namespace ladder
