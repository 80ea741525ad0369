#include "common/optim/optimizer.hpp"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

at::Tensor noise(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// A matrix (with decay), a vector (without) and a frozen matrix, all of awkward sizes.
std::vector<Unit> units() {
  return {{"unit",
           {{"w", noise({7, 5})},
            {"b", noise({13})},
            {"frozen", noise({3, 3}).detach()},
            {"v", noise({65, 3})}}}};
}

// Parameters with their gradients.
struct Subject {
  explicit Subject(const std::vector<Unit>& the_units, std::int64_t unit_multiple = 1)
      : model(the_units, unit_multiple) {}
  void fill_gradients() {
    for (const NamedTensor& view : named_views(model.layout(), grads.flat())) view.tensor.normal_();
  }

  FlatModel model;
  FlatGradients grads{model};
};

// The kernel holds a pointer into the optimizer.
static_assert(!std::is_copy_constructible_v<Optimizer> && !std::is_move_constructible_v<Optimizer>);
static_assert(!std::is_copy_assignable_v<Optimizer> && !std::is_move_assignable_v<Optimizer>);

TEST(Optimizer, JoinsNeighboursOfOneDecay) {
  std::vector<Unit> list = units();
  list[0].tensors.push_back({"v2", noise({2, 2})});
  const std::vector<UpdateRange> ranges = plan_updates(plan_flat_layout(list));
  ASSERT_EQ(ranges.size(), 3u);  // w | b | v and v2; nothing covers the frozen tensor
  EXPECT_EQ(ranges[0].numel, 48);
  EXPECT_FALSE(ranges[1].has_decay);
  EXPECT_EQ(ranges[2].start, 48 + 16 + 16);
  EXPECT_EQ(ranges[2].numel, 208 + 16);
}

TEST(Optimizer, AdamWFollowsItsFormula) {
  at::manual_seed(1);
  Subject subject(units());
  FlatModel& model = subject.model;
  const OptimizerOptions options{.weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  Optimizer optimizer(model, subject.grads, options);
  const double lr = 1e-2;
  std::vector<at::Tensor> p, m, v;
  for (const NamedTensor& view : model.named_params()) {
    p.push_back(view.tensor.to(at::kDouble));
    m.push_back(at::zeros_like(p.back()));
    v.push_back(at::zeros_like(p.back()));
  }
  for (int t = 1; t <= 5; ++t) {
    subject.fill_gradients();
    const std::vector<NamedTensor> grads = named_views(model.layout(), subject.grads.flat());
    optimizer.step(lr);
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (i == 2) continue;  // frozen
      const at::Tensor g = grads[i].tensor.to(at::kDouble);
      if (p[i].dim() >= 2) p[i] *= 1 - lr * options.weight_decay;
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      p[i] -= lr * (m[i] / (1 - std::pow(options.beta1, t))) /
              ((v[i] / (1 - std::pow(options.beta2, t))).sqrt() + options.eps);
    }
  }
  const std::vector<NamedTensor> params = model.named_params();
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_LT((params[i].tensor.to(at::kDouble) - p[i]).abs().max().item<double>(), 1e-6)
        << params[i].name;
  }
  EXPECT_EQ(optimizer.num_steps(), 5);
  EXPECT_EQ(optimizer.named_state(model.layout()).size(), 8u);
  EXPECT_EQ(optimizer.named_state(model.layout())[0].name, "w.exp_avg");
}

TEST(Optimizer, PaddingStaysZero) {
  Subject subject(units(), 1024);
  FlatModel& model = subject.model;
  Optimizer optimizer(model, subject.grads, {});
  for (int t = 0; t < 3; ++t) {
    subject.fill_gradients();
    optimizer.step(1e-2);
  }
  double inside = 0;
  for (const NamedTensor& view : model.named_params())
    inside += view.tensor.abs().to(at::kDouble).sum().item<double>();
  EXPECT_NEAR(model.params().abs().to(at::kDouble).sum().item<double>(), inside, 1e-9);
}

// A range may be cut at any multiple of 16 elements; ZeRO relies on this. A frozen tensor between
// the two parts keeps the optimizer from joining them.
TEST(Optimizer, CutRunsGiveTheSameBits) {
  at::manual_seed(2);
  constexpr std::int64_t kNumel = 64 * 33;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    const OptimizerOptions options{.kind = kind};
    Subject whole({{"unit", {{"w", noise({64, 33})}}}});
    whole.fill_gradients();
    const at::Tensor start = whole.model.params().clone(), grads = whole.grads.flat().clone();
    Optimizer(whole.model, whole.grads, options).step(1e-2);
    for (const std::int64_t cut : {16, 48, 1024, 2096}) {
      const std::int64_t rest = kNumel - cut;
      Subject parts(
          {{"unit",
            {{"a", noise({1, cut})}, {"frozen", noise({16}).detach()}, {"b", noise({1, rest})}}}});
      ASSERT_EQ(plan_updates(parts.model.layout()).size(), 2u);
      const auto copy_parts = [&](const at::Tensor& from, const at::Tensor& to) {
        to.narrow(0, 0, cut).copy_(from.narrow(0, 0, cut));
        to.narrow(0, cut + 16, rest).copy_(from.narrow(0, cut, rest));
      };
      copy_parts(start, parts.model.params());
      copy_parts(grads, parts.grads.flat());
      Optimizer(parts.model, parts.grads, options).step(1e-2);
      EXPECT_TRUE(
          parts.model.params().narrow(0, 0, cut).equal(whole.model.params().narrow(0, 0, cut)));
      EXPECT_TRUE(parts.model.params()
                      .narrow(0, cut + 16, rest)
                      .equal(whole.model.params().narrow(0, cut, rest)))
          << "cut at " << cut;
    }
  }
}

TEST(Optimizer, RefusesASliceOfHalfAPiece) {
  const Subject subject(units());
  const OptimizerSlice half = {subject.model.params().narrow(0, 0, 8),
                               subject.grads.flat().narrow(0, 0, 8)};
  EXPECT_THROW(Optimizer({half}, 8, {}, {}), CheckError);
}

TEST(Optimizer, SgdFollowsItsFormula) {
  at::manual_seed(3);
  Subject subject(units());
  FlatModel& model = subject.model;
  Optimizer optimizer(model, subject.grads, {.kind = OptimizerKind::kSgd, .weight_decay = 0.5});
  const at::Tensor before = model.params().clone();
  subject.fill_gradients();
  optimizer.step(0.1);
  const FlatTensor& w = model.layout().tensors[0];
  const FlatTensor& b = model.layout().tensors[1];
  const auto part = [](const at::Tensor& flat, const FlatTensor& t) {
    return flat.narrow(0, t.start, t.numel);
  };
  EXPECT_TRUE(part(model.params(), w)
                  .allclose(part(before, w) * 0.95 - 0.1 * part(subject.grads.flat(), w)));
  EXPECT_TRUE(
      part(model.params(), b).allclose(part(before, b) - 0.1 * part(subject.grads.flat(), b)));
  EXPECT_TRUE(optimizer.state().empty());
}

TEST(Optimizer, StepAllocatesNothing) {
  install_memory_ledger();
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    Subject subject(units());
    FlatModel& model = subject.model;
    const std::int64_t before = read_memory().live(MemoryCategory::kOptimizer);
    Optimizer optimizer(model, subject.grads, {.kind = kind});
    const std::int64_t bytes_per_element = kind == OptimizerKind::kAdamW ? 8 : 0;
    EXPECT_EQ(read_memory().live(MemoryCategory::kOptimizer) - before,
              bytes_per_element * model.layout().numel);
    reset_memory_peaks();
    const std::int64_t live = read_memory().total_live_bytes;
    optimizer.step(1e-3);
    EXPECT_EQ(read_memory().peak_bytes, live);
  }
}

}  // namespace
}  // namespace ladder
