#include "common/model/weight_gradients.hpp"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "common/model/model.hpp"
#include "common/model/modules.hpp"

namespace ladder {
namespace {

struct TwoLinears {
  Linear first, second;
  explicit TwoLinears() {
    at::manual_seed(1);
    const auto leaf = [](at::IntArrayRef shape) {
      return at::randn(shape).set_requires_grad(true);
    };
    first = {leaf({6, 20}), leaf({20})};
    second = {leaf({20, 5}), {}};
    for (const at::Tensor& parameter : parameters()) {
      at::Tensor handle = parameter;
      handle.mutable_grad() = at::zeros_like(handle);
    }
  }
  std::vector<at::Tensor> parameters() const { return {first.weight, first.bias, second.weight}; }
  at::Tensor operator()(const at::Tensor& x) const { return second(first(x).tanh()); }
};

at::Tensor input(int i) {
  at::manual_seed(10 + static_cast<std::uint64_t>(i));
  return at::randn({3, 6}).set_requires_grad(true);
}

// Two passes, their wgrads at the very end: the same bits as two ordinary backwards.
TEST(WeightGradientQueue, TheTwoHalvesAreTheWhole) {
  const TwoLinears whole, halved;
  WeightGradientQueue queues[2];
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = input(i), wanted = input(i);
    whole(wanted).square().sum().backward();
    at::Tensor loss;
    {
      const DeferWeightGradients scope(&queues[i]);
      loss = halved(x).square().sum();
    }
    loss.backward();  // outside the scope: forward has bound it to the queue
    EXPECT_TRUE(x.grad().equal(wanted.grad()));
  }
  for (const at::Tensor& parameter : halved.parameters()) {
    EXPECT_EQ(parameter.grad().abs().max().item<float>(), 0.0f);
  }
  for (WeightGradientQueue& queue : queues) queue.run();
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(halved.parameters()[i].grad().equal(whole.parameters()[i].grad())) << i;
}

TEST(WeightGradientQueue, RunsInTheOrderOfBackwardOnceAndNamesEachParameter) {
  const TwoLinears model;
  WeightGradientQueue queue;
  {
    const DeferWeightGradients scope(&queue);
    model(input(0)).sum().backward();
  }
  std::vector<const void*> seen;
  EXPECT_FALSE(queue.empty());
  queue.run([&](const at::Tensor& parameter) { seen.push_back(parameter.unsafeGetTensorImpl()); });
  queue.run([&](const at::Tensor&) { FAIL(); });
  EXPECT_TRUE(queue.empty());
  const std::vector<const void*> wanted = {model.second.weight.unsafeGetTensorImpl(),
                                           model.first.weight.unsafeGetTensorImpl(),
                                           model.first.bias.unsafeGetTensorImpl()};
  EXPECT_EQ(seen, wanted);
}

TEST(WeightGradientQueue, DefersOnlyInItsScopeAndOnlyWhatIsTrained) {
  TwoLinears model;
  WeightGradientQueue outer, inner;
  const DeferWeightGradients scope(&outer);
  {
    const DeferWeightGradients nested(&inner);
    EXPECT_EQ(DeferWeightGradients::current(), &inner);
    const DeferWeightGradients none(nullptr);
    EXPECT_EQ(DeferWeightGradients::current(), nullptr);
  }
  EXPECT_EQ(DeferWeightGradients::current(), &outer);
  model.first.weight = model.first.weight.detach();
  model.second.weight = model.second.weight.detach();
  model(input(0)).sum().backward();
  int num_run = 0;
  outer.run([&](const at::Tensor& parameter) {
    ++num_run;
    EXPECT_EQ(parameter.numel(), 20);
  });
  EXPECT_EQ(num_run, 1);  // the bias
}

TEST(WeightGradientQueue, WithoutAnInputGradientNothingIsDeferred) {
  const TwoLinears whole, halved;
  WeightGradientQueue queue;
  whole(input(0).detach()).sum().backward();
  {
    const DeferWeightGradients scope(&queue);
    halved(input(0).detach()).sum().backward();
  }
  EXPECT_TRUE(halved.first.weight.grad().equal(whole.first.weight.grad()));
  EXPECT_EQ(halved.second.weight.grad().abs().max().item<float>(), 0.0f);
  queue.run();
  EXPECT_TRUE(halved.second.weight.grad().equal(whole.second.weight.grad()));
}

// What waits needs the inputs of its products, not the graph between them: that leads to the leaf
// at the start and to the gradient of it, which a pipeline has sent away by then.
TEST(WeightGradientQueue, WhatWaitsKeepsNoGraph) {
  const TwoLinears model;
  WeightGradientQueue queue;
  at::Tensor x = input(0);
  {
    const DeferWeightGradients scope(&queue);
    model(x.tanh()).sum().backward();
  }
  using Watched = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  const Watched leaf(x.getIntrusivePtr()), gradient(x.grad().getIntrusivePtr());
  x.reset();
  EXPECT_FALSE(queue.empty());
  EXPECT_TRUE(leaf.expired());
  EXPECT_TRUE(gradient.expired());
  queue.run();
}

class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(int& count) : count_(count) {}
  void operator()(const at::Tensor& /*parameter*/) override { ++count_; }

 private:
  int& count_;
};

// A hook would say that the gradient is final, when half of it is missing.
TEST(WeightGradientQueue, NoHookFiresForADeferredGradient) {
  const TwoLinears model;
  int num_calls = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(num_calls));
  }
  WeightGradientQueue queue;
  {
    const DeferWeightGradients scope(&queue);
    model(input(0)).sum().backward();
  }
  queue.run();
  EXPECT_EQ(num_calls, 0);
  model(input(0)).sum().backward();
  EXPECT_EQ(num_calls, 3);
}

// A tied head: its backward is not cut, so the hook fires once, after autograd has added up what
// both layers add to the weight.
TEST(WeightGradientQueue, ASharedGradientIsOneSum) {
  const TwoLinears linears;
  const at::Tensor shared = linears.first.weight;
  const auto head = [=](const at::Tensor& x) { return project(x, shared); };
  const Model model = {{{{"first", {}}, linears.first}, {{"head", {}}, head, /*reads=*/0}}};
  const auto backward = [&] { model.forward(input(0).detach()).square().sum().backward(); };
  backward();
  const at::Tensor wanted = shared.grad().clone();
  shared.mutable_grad().zero_();
  int num_calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(shared, std::make_unique<Hook>(num_calls));
  WeightGradientQueue queue;
  {
    const DeferWeightGradients scope(&queue);
    backward();
    EXPECT_EQ(DeferWeightGradients::current(), &queue);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(num_calls, 1);
  EXPECT_TRUE(shared.grad().equal(wanted));
}

}  // namespace
}  // namespace ladder
