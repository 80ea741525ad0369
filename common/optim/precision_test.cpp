// 16-bit parameters: their layout, their masters, and what replaces those.
#include "common/core/precision.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"
#include "common/optim/rounding.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

at::Tensor leaf_in(const at::Tensor& values, const Precision& precision) {
  at::Tensor tensor = values.to(to_torch(precision.params), /*non_blocking=*/false, /*copy=*/true);
  tensor.set_requires_grad(true);
  if (precision.grads != precision.params) tensor.set_grad_dtype(to_torch(precision.grads));
  return tensor;
}

// The same values in any precision.
std::vector<Unit> units_in(const Precision& precision) {
  at::manual_seed(1);
  std::vector<Unit> list = {{"a", {}}, {"b", {}}};
  list[0].tensors = {{"w", leaf_in(at::randn({7, 5}).to(at::kHalf), precision)},
                     {"b", leaf_in(at::randn({13}).to(at::kHalf), precision)}};
  list[1].tensors = {{"v", leaf_in(at::randn({65, 3}).to(at::kHalf), precision)}};
  return list;
}

struct NarrowSubject {
  explicit NarrowSubject(const Precision& precision) : model(units_in(precision)) {}
  void fill_gradients(std::uint64_t seed) {
    at::manual_seed(seed);
    for (const NamedTensor& view : named_views(model.layout(), grads.flat()))
      view.tensor.copy_(at::randn(view.tensor.sizes()).to(at::kBFloat16));
  }
  FlatModel model;
  FlatGradients grads{model};
};

// The values without the padding, which differs.
at::Tensor values_of(const FlatLayout& layout, const at::Tensor& flat) {
  std::vector<at::Tensor> parts;
  for (const NamedTensor& view : named_views(layout, flat)) parts.push_back(view.tensor.flatten());
  return at::cat(parts).to(at::kFloat);
}

constexpr Precision kBf16 = {NumberFormat::kBf16, NumberFormat::kFp32};
constexpr Precision kAllBf16 = {NumberFormat::kBf16, NumberFormat::kBf16};
constexpr Precision kFp16 = {NumberFormat::kFp16, NumberFormat::kFp32};

// All ranks hold, save and send the same, so a shard that consists of padding has its masters too.
TEST(Precision, AShardWithNothingToUpdateHasItsStateAllTheSame) {
  Optimizer with_nothing({}, /*state_numel=*/64, FlatLayout{.precision = kBf16}, {});
  ASSERT_TRUE(with_nothing.masters().defined());
  EXPECT_EQ(with_nothing.masters().numel(), 64);
  with_nothing.step(1e-3);
  EXPECT_EQ(with_nothing.masters().count_nonzero().item<std::int64_t>(), 0);
  EXPECT_FALSE(Optimizer({}, 64, FlatLayout{}, {}).masters().defined());
}

TEST(Precision, TensorsStartAtMultiplesOf64BytesAndOnAGpuOf256) {
  for (const auto& [precision, on_cpu] :
       {std::pair{Precision{}, 16}, {kBf16, 32}, {kAllBf16, 32}}) {
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      const int alignment = device.is_cuda() ? 4 * on_cpu : on_cpu;
      const FlatLayout layout = plan_flat_layout(units_in(precision), /*unit_multiple=*/3, device);
      EXPECT_EQ(layout.precision, precision);
      EXPECT_EQ(layout.alignment(), alignment);
      for (const FlatTensor& tensor : layout.tensors) EXPECT_EQ(tensor.start % alignment, 0);
      for (const FlatUnit& unit : layout.units) EXPECT_EQ(unit.numel % (3 * alignment), 0);
      EXPECT_EQ(layout.num_parameters, 35 + 13 + 195);
    }
  }
  EXPECT_EQ(in_fp32(plan_flat_layout(units_in(kBf16))).tensors[2].start, 96);
}

TEST(Precision, TensorsOfOneLayoutHaveOneType) {
  std::vector<Unit> mixed = units_in(kBf16);
  mixed[1].tensors.push_back({"odd", leaf_in(at::randn({3}), {})});
  expect_throws<CheckError>([&] { plan_flat_layout(mixed); }, {"'odd'"});
  mixed[1].tensors.back() = {"odd", leaf_in(at::randn({3}), kAllBf16)};
  expect_throws<CheckError>([&] { plan_flat_layout(mixed); }, {"'odd'"});
  mixed[1].tensors.back() = {"frozen", at::randn({3}).to(at::kBFloat16)};
  EXPECT_EQ(plan_flat_layout(mixed).precision, kBf16);
  expect_throws<CheckError>(
      [] { FlatModel(plan_flat_layout(units_in({}))).add(units_in(kBf16)[0]); },
      {"'w' is BFloat16"});
}

TEST(Precision, BuffersTakeTheBytesThatTheySay) {
  const NarrowSubject bf16(kBf16), all(kAllBf16);
  EXPECT_EQ(bf16.model.params().element_size(), 2u);
  EXPECT_EQ(bf16.grads.flat().element_size(), 4u);
  EXPECT_EQ(all.grads.flat().element_size(), 2u);
  EXPECT_EQ(bf16.model.leaves()[0].tensor.grad().scalar_type(), at::kFloat);
}

// The optimizer sees masters only: their bits are those of an optimizer of fp32 parameters that
// started from the same values. The parameters are the masters, rounded.
TEST(Precision, MastersAreUpdatedAsFp32ParametersAre) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    for (const Precision& precision : {kBf16, kAllBf16, kFp16}) {
      NarrowSubject narrow(precision);
      const at::Tensor start = values_of(narrow.model.layout(), narrow.model.params());
      NarrowSubject wide({});
      std::int64_t begin = 0;
      for (const NamedTensor& view : wide.model.named_params()) {
        view.tensor.copy_(start.narrow(0, begin, view.tensor.numel()).view(view.tensor.sizes()));
        begin += view.tensor.numel();
      }
      Optimizer of_narrow(narrow.model, narrow.grads, {.kind = kind});
      Optimizer of_wide(wide.model, wide.grads, {.kind = kind});
      for (std::uint64_t step = 1; step <= 4; ++step) {
        for (NarrowSubject* subject : {&narrow, &wide}) subject->fill_gradients(step);
        of_narrow.step(1e-2);
        of_wide.step(1e-2);
        const at::Tensor wanted = values_of(wide.model.layout(), wide.model.params());
        const FlatModel masters = of_narrow.updated_model(narrow.model);
        EXPECT_TRUE(values_of(masters.layout(), masters.params()).equal(wanted));
        EXPECT_TRUE(values_of(narrow.model.layout(), narrow.model.params())
                        .equal(wanted.to(to_torch(precision.params)).to(at::kFloat)));
      }
      EXPECT_FALSE(of_wide.masters().defined());
    }
  }
}

// 1 − 2^-12 is nearer to 1 than to any other bf16 number.
TEST(Precision, OnlyMastersRememberASmallChange) {
  const auto after = [](Masters masters, int steps) {
    const std::vector<Unit> list = {{"unit", {{"w", leaf_in(at::full({64, 64}, 1.0), kBf16)}}}};
    FlatModel model(list);
    FlatGradients grads(model);
    Optimizer sgd(model, grads,
                  {.kind = OptimizerKind::kSgd, .weight_decay = 0, .masters = masters});
    grads.flat().fill_(1);
    for (int step = 0; step < steps; ++step) sgd.step(0x1p-12);
    return model.params().to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(after(Masters::kFp32, 64), 1 - 0x1p-6);
  EXPECT_EQ(after(Masters::kNone, 64), 1);
  EXPECT_NEAR(after(Masters::kStochastic, 64), 1 - 0x1p-6, 3e-4);
  EXPECT_NE(after(Masters::kStochastic, 1), 1);
}

// More elements than scratch has room for.
TEST(Precision, PiecesChangeNoBit) {
  const std::vector<Unit> list = {{"unit", {{"w", leaf_in(at::randn({1300, 1000}), kAllBf16)}}}};
  FlatModel model(list);
  FlatGradients grads(model);
  grads.flat().copy_(at::randn({grads.flat().numel()}));
  const at::Tensor before = model.params().clone(), gradient = grads.flat().to(at::kFloat);
  Optimizer sgd(model, grads,
                {.kind = OptimizerKind::kSgd, .weight_decay = 0, .masters = Masters::kNone});
  sgd.step(0.5);
  const at::Tensor wanted = (before.to(at::kFloat) - 0.5 * gradient).to(at::kBFloat16);
  EXPECT_TRUE(model.params().equal(wanted));
}

TEST(Precision, NormsAreThoseOfTheWidenedValues) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = at::randn({5000}).to(type);
    EXPECT_EQ(block_sums({values}), block_sums({values.to(at::kFloat)}));
  }
  expect_throws<CheckError>([] { block_sums({at::randn({3}).to(at::kDouble)}); }, {"bf16"});
}

// Clipped gradients below 6e-8, which 16 bits cannot hold, of a loss scaled by 2^16: what the
// optimizer makes of them is compared with fp32 arithmetic. No parity test sees this, for all steps
// share it.
TEST(Precision, GradientsAreUnscaledInFp32) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const double clip_norm : {0.0, 1e-7}) {
        SCOPED_TRACE(::testing::Message() << type << ", clip norm " << clip_norm);
        const NumberFormat params = format_of(type == at::kFloat ? at::kHalf : type);
        NarrowSubject scaled({params, format_of(type)}), plain({params, NumberFormat::kFp32});
        at::manual_seed(5);
        for (const NamedTensor& view : named_views(plain.model.layout(), plain.grads.flat()))
          view.tensor.copy_(at::randn(view.tensor.sizes()).mul_(0.01).to(type));
        scaled.grads.flat().copy_(plain.grads.flat());
        plain.grads.flat().mul_(0x1p-16);
        const at::Tensor before = scaled.grads.flat().clone();
        const Clipping of_scaled(gradient_norm(scaled.grads), clip_norm, 0x1p16);
        const Clipping of_plain(gradient_norm(plain.grads), clip_norm);
        EXPECT_EQ(of_scaled.norm, of_plain.norm);
        plain.grads.flat().mul_(of_plain.factor);
        Optimizer from_scaled(scaled.model, scaled.grads, {.kind = kind});
        Optimizer from_plain(plain.model, plain.grads, {.kind = kind});
        from_scaled.step(1e-2, of_scaled.factor);
        from_plain.step(1e-2);
        EXPECT_TRUE(from_scaled.masters().equal(from_plain.masters()));
        if (kind == OptimizerKind::kAdamW) {
          EXPECT_TRUE(from_scaled.state()[0].tensor.equal(from_plain.state()[0].tensor));
          EXPECT_GT(from_plain.state()[0].tensor.count_nonzero().item<std::int64_t>(), 200);
        }
        if (type != at::kFloat) {
          EXPECT_TRUE(scaled.grads.flat().equal(before));
        }
      }
    }
  }
}

// A function of a leaf, as a model's loss is. The largest scale is infinite in fp16.
TEST(LossScaler, MultipliesGradientsAndNoValue) {
  const at::Tensor w = at::full({}, 3.0).set_requires_grad(true);
  const std::function<at::Tensor(double)> loss = [&](double factor) { return w * factor; };
  const auto gradient_of = [&](const std::function<at::Tensor(double)>& function) {
    w.mutable_grad().reset();
    const at::Tensor value = function(5);
    EXPECT_EQ(value.item<double>(), 15);
    (value / 2).backward();
    return w.grad().item<double>();
  };
  LossScaler scaler({.initial = 0x1p30});
  const auto scaled = scaler.applied_to(loss);
  EXPECT_EQ(gradient_of(scaled), 2.5 * 0x1p30);
  scaler.accepts(std::numeric_limits<double>::infinity());
  EXPECT_EQ(gradient_of(scaled), 2.5 * 0x1p29);
  const LossScaler none;
  EXPECT_EQ(gradient_of(none.applied_to(loss)), 2.5);
  const at::NoGradGuard evaluates;
  EXPECT_EQ(scaled(5).item<double>(), 15);
}

// ---- Stochastic rounding

at::Tensor rounded(const at::Tensor& values, at::ScalarType type, std::uint64_t stream = 1,
                   std::int64_t first = 0) {
  const at::Tensor result = at::empty(values.sizes(), type);
  round_stochastically(values, result, stream, first);
  return result.to(at::kFloat);
}

TEST(Rounding, GoesUpAsOftenAsItShould) {
  for (const double share : {0.25, 0.5, 0.9}) {
    for (const double sign : {1.0, -1.0}) {
      const at::Tensor values = at::full({20000}, sign * (1 + share * 0x1p-7));
      const at::Tensor result = rounded(values, at::kBFloat16);
      EXPECT_TRUE(((result == sign) | (result == sign * (1 + 0x1p-7))).all().item<bool>());
      EXPECT_NEAR((result.abs() > 1).to(at::kDouble).mean().item<double>(), share, 0.015);
    }
  }
  const at::Tensor tiny = at::full({20000}, 0x1p-26);  // a quarter of fp16's smallest number
  EXPECT_NEAR((rounded(tiny, at::kHalf) > 0).to(at::kDouble).mean().item<double>(), 0.25, 0.015);
}

TEST(Rounding, LeavesAloneWhatNeedsNone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor exact = at::cat(
        {at::linspace(-4, 4, 1000).to(type).to(at::kFloat), at::tensor({kInf, -kInf, 0.F})});
    EXPECT_TRUE(rounded(exact, type).equal(exact));
    const at::Tensor values = at::randn({5000});
    const at::Tensor error = (rounded(values, type) - values).abs();
    EXPECT_TRUE(
        (error < values.abs() * (type == at::kHalf ? 0x1p-10 : 0x1p-7) + 1e-7).all().item<bool>());
  }
  EXPECT_TRUE(rounded(at::full({1}, std::nan("")), at::kBFloat16).isnan().all().item<bool>());
  EXPECT_THROW(rounded(at::randn({3}), at::kDouble), CheckError);
}

TEST(Rounding, DependsOnThePlaceAlone) {
  const at::Tensor values = at::randn({1000});
  const at::Tensor whole = rounded(values, at::kBFloat16, 7);
  const at::Tensor parts = at::cat({rounded(values.slice(0, 0, 333), at::kBFloat16, 7),
                                    rounded(values.slice(0, 333), at::kBFloat16, 7, 333)});
  EXPECT_TRUE(parts.equal(whole));
  EXPECT_FALSE(rounded(values, at::kBFloat16, 8).equal(whole));
  EXPECT_NE(rounding_stream(1, 2, "w"), rounding_stream(1, 3, "w"));
  EXPECT_NE(rounding_stream(1, 2, "w"), rounding_stream(1, 2, "v"));
  EXPECT_NE(rounding_stream(1, 2, "w"), rounding_stream(2, 2, "w"));
}

}  // namespace
}  // namespace ladder
