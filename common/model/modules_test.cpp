#include "common/model/attention.hpp"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "common/model/gelu.hpp"
#include "common/testing/differentiate.hpp"
#include "common/testing/operator_calls.hpp"

namespace ladder {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

at::Tensor addmm(const Tensors& in) {
  return at::addmm(in[2], in[0], in[1]);
}
at::Tensor layer_norm(const Tensors& in) {
  return LayerNorm{in[1], in[2]}(in[0]);
}

using Shape = std::array<std::int64_t, 3>;  // rows, in, out
class LinearTest : public ::testing::TestWithParam<std::tuple<Products, Shape>> {};

TEST_P(LinearTest, ValueAndGradientsAreThoseOfAddmm) {
  at::manual_seed(1);
  const auto& [products, shape] = GetParam();
  const auto [rows, in, out] = shape;
  const auto linear = [products = products](const Tensors& t) {
    return Linear{t[1], t[2], products}(t[0]);
  };
  const Tensors values = {at::randn({rows, in}), at::randn({in, out}), at::randn({out})};
  const Tensors got = expect_formula(linear, addmm, values, at::kFloat, 1e-5);
  EXPECT_TRUE(got[2].is_contiguous());  // the weight's gradient
}

INSTANTIATE_TEST_SUITE_P(Products, LinearTest,
                         ::testing::Combine(::testing::Values(Products::kOneDnn, Products::kBlas),
                                            ::testing::Values(Shape{1, 1, 1}, Shape{1, 7, 3},
                                                              Shape{33, 17, 65},
                                                              Shape{512, 384, 258})));

bool has_onednn() {
  const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return found && found->hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

TEST(Products, OneDnnIsTheFasterWithAvx512) {
  EXPECT_EQ(faster_products() == Products::kOneDnn,
            has_onednn() && at::get_cpu_capability() == "AVX512");
}

// The bits do not always tell which library has multiplied: on some CPUs both round alike.
TEST(Products, BlasGivesTheBitsOfAddmmAndOneDnnMultipliesItself) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({512, 384}), weight = at::randn({384, 256});
  const at::Tensor bias = at::randn({256}), head = at::randn({256, 384});
  const auto of_weight = [&](const auto& function) {
    return differentiate(function, {x, weight}, at::kFloat);
  };
  const auto of_head = [&](const auto& function) {
    return differentiate(function, {x, head}, at::kFloat);
  };
  const auto linear = [&](Products products) {
    return of_weight([&](const Tensors& t) { return Linear{t[1], bias, products}(t[0]); });
  };
  const auto projected = [&](Products products) {
    return of_head([&](const Tensors& t) { return project(t[0], t[1], products); });
  };
  const auto addmm = of_weight([&](const Tensors& t) { return at::addmm(bias, t[0], t[1]); });
  const auto mm = of_head([](const Tensors& t) { return at::mm(t[0], t[1].t()); });
  const auto num_onednn_products = [](const auto& multiply) {
    return operator_calls_of(multiply)["mkldnn::_linear_pointwise"];
  };
  Tensors blas, blas_of_head, own, own_of_head;
  EXPECT_EQ(num_onednn_products([&] {
              blas = linear(Products::kBlas);
              blas_of_head = projected(Products::kBlas);
            }),
            0);
  EXPECT_EQ(num_onednn_products([&] {
              own = linear(Products::kOneDnn);
              own_of_head = projected(Products::kOneDnn);
            }),
            has_onednn() ? 6 : 0);
  for (std::size_t i = 0; i < 3; ++i) {  // the value and both gradients, each a product of its own
    EXPECT_TRUE(blas[i].equal(addmm[i])) << i;
    EXPECT_TRUE(blas_of_head[i].equal(mm[i])) << i;
    EXPECT_TRUE(close_in_norm(own[i], addmm[i], 1e-5)) << i;
    EXPECT_TRUE(close_in_norm(own_of_head[i], mm[i], 1e-5)) << i;
  }
}

// Where an element lies among the others, and how many there are, changes no bit of it.
TEST(Gelu, OursIsThatOfTheFormulaAtEveryPosition) {
  if (at::get_cpu_capability() == "DEFAULT") GTEST_SKIP() << "this CPU has no AVX2";
  at::manual_seed(5);
  const at::Tensor x = at::randn(2077) * 2, dy = at::randn(2077);
  x[2000].fill_(-100), x[2001].fill_(100), x[2002].fill_(0);
  struct Case {
    GeluForm form;
    const char* name;
    at::ScalarType type;
    double tolerance;
  };
  for (const auto& [form, name, type, tolerance] : {Case{GeluForm::kTanh, "tanh", at::kFloat, 2e-6},
                                                    {GeluForm::kExact, "none", at::kFloat, 6e-7},
                                                    {GeluForm::kExact, "none", at::kBFloat16, 0.04},
                                                    {GeluForm::kExact, "none", at::kHalf, 5e-3}}) {
    SCOPED_TRACE(concat(name, " in ", at::toString(type)));
    const auto own = [form = form](const Tensors& t) { return gelu_with_avx2(t[0], form); };
    const auto aten = [name = name](const Tensors& t) { return at::gelu(t[0], name); };
    const auto ours = differentiate(own, {x}, type, dy);
    const auto wanted = differentiate(aten, {x.to(type)}, at::kDouble, dy.to(type));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_LT((ours[i].to(at::kDouble) - wanted[i]).abs().max().item<double>(), tolerance) << i;
    for (const std::int64_t length : {1, 5, 2072}) {
      const auto of_a_part =
          differentiate(own, {x.slice(0, 5, 5 + length)}, type, dy.slice(0, 5, 5 + length));
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(of_a_part[i].equal(ours[i].slice(0, 5, 5 + length))) << i << " " << length;
    }
  }
}

// The CPU has two of them.
TEST(AttentionBackend, IsWhatLibtorchTakes) {
  const ModelOptions model;
  EXPECT_EQ(attention_backend(model, Device::kCpu), "flash");
  at::globalContext().setSDPUseFlash(false);
  EXPECT_EQ(attention_backend(model, Device::kCpu), "math");
  at::globalContext().setSDPUseFlash(true);
}

TEST(Linear, FrozenWeightGetsNoGradient) {
  Linear layer{leaf({4, 3}).detach(), leaf({3})};
  layer(leaf({2, 4})).sum().backward();
  EXPECT_FALSE(layer.weight.grad().defined());
  EXPECT_TRUE(layer.bias.grad().defined());
}

TEST(Linear, DoublePrecisionTakesTheOrdinaryKernel) {
  const at::Tensor x = at::randn({3, 4}, at::kDouble), weight = at::randn({4, 2}, at::kDouble);
  EXPECT_TRUE(close_in_norm(Linear{weight, {}}(x), at::mm(x, weight), 1e-14));
}

// ---- 16 bits

class NarrowTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // What `function` itself computes in double.
  template <class Function>
  void expect_own_formula(const Function& function, const Tensors& values, double tolerance) {
    expect_formula(function, function, values, GetParam(), tolerance);
  }
};

// Values and gradients are those of exact arithmetic, rounded: sums are longer than 256 ones, at
// which a sum in bf16 would stop to grow.
TEST_P(NarrowTest, ProductsAddUpInFp32) {
  at::manual_seed(4);
  const auto linear = [](const Tensors& t) { return Linear{t[1], t[2]}(t[0]); };
  for (const auto& [rows, in, out] :
       {std::tuple{1, 1, 1}, {3, 33, 7}, {33, 600, 65}, {600, 24, 258}}) {
    expect_formula(linear, addmm, {at::randn({rows, in}), at::randn({in, out}), at::randn({out})},
                   GetParam(), GetParam() == at::kHalf ? 2e-3 : 1.2e-2);
  }
  const at::Tensor ones = at::ones({64, 512}, GetParam());
  EXPECT_TRUE(project(ones, ones).eq(512).all().item<bool>());
}

TEST_P(NarrowTest, AttentionAndLayerNormAreThoseOfDoublePrecision) {
  at::manual_seed(5);
  const double tolerance = GetParam() == at::kHalf ? 5e-3 : 4e-2;
  for (const int heads : {1, 2}) {
    expect_own_formula(
        [=](const Tensors& t) {
          return Attention{{t[1], t[2]}, {t[3], t[4]}, heads}(t[0]);
        },
        {at::randn({2, 9, 20}) / 4, at::randn({20, 60}), at::randn({60}), at::randn({20, 20}),
         at::randn({20})},
        tolerance);
  }
  expect_own_formula(layer_norm, {at::randn({30, 48}), at::randn({48}), at::randn({48})},
                     tolerance);
}

// Thousands of tokens: a sum in 16 bits would be off by 30%.
TEST_P(NarrowTest, GradientsAreAddedUpOverTokensInFp32) {
  at::manual_seed(7);
  expect_own_formula(layer_norm, {at::randn({4096, 16}), at::randn({16}), at::randn({16})}, 5e-3);
  const at::Tensor tokens = at::randint(3, {4096}, at::kLong);
  expect_own_formula([&](const Tensors& t) { return look_up(t[0], tokens); }, {at::randn({3, 16})},
                     5e-3);
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowTest, ::testing::Values(at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace ladder
