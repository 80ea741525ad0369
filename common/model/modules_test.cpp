#include "common/model/attention.hpp"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "common/model/gelu.hpp"
#include "common/testing/operator_calls.hpp"

namespace ladder {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// The largest difference, relative to the largest value.
double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.abs().max().to(at::kDouble))
      .item<double>();
}

using Shape = std::array<std::int64_t, 3>;  // rows, in, out
class LinearTest : public ::testing::TestWithParam<std::tuple<Products, Shape>> {};

TEST_P(LinearTest, ValueAndGradientsAreThoseOfAddmm) {
  at::manual_seed(1);
  const auto& [products, shape] = GetParam();
  const auto [rows, in, out] = shape;
  const at::Tensor x = leaf({rows, in}), weight = leaf({in, out}), bias = leaf({out});
  const at::Tensor dy = at::randn({rows, out});
  const at::Tensor y = Linear{weight, bias, products}(x);
  y.backward(dy);
  const at::Tensor reference =
      at::addmm(bias.to(at::kDouble), x.to(at::kDouble), weight.to(at::kDouble));
  EXPECT_LT(distance(y, reference), 1e-5);
  EXPECT_LT(distance(x.grad(), at::mm(dy.to(at::kDouble), weight.to(at::kDouble).t())), 1e-5);
  EXPECT_LT(distance(weight.grad(), at::mm(x.to(at::kDouble).t(), dy.to(at::kDouble))), 1e-5);
  EXPECT_LT(distance(bias.grad(), dy.to(at::kDouble).sum(0)), 1e-5);
  EXPECT_TRUE(weight.grad().is_contiguous());
}

INSTANTIATE_TEST_SUITE_P(Products, LinearTest,
                         ::testing::Combine(::testing::Values(Products::kOneDnn, Products::kBlas),
                                            ::testing::Values(Shape{1, 1, 1}, Shape{1, 7, 3},
                                                              Shape{33, 17, 65},
                                                              Shape{512, 384, 258})));

// What a layer or the head computes from these: its value and all gradients.
template <class Layer>
std::vector<at::Tensor> results(const Layer& layer, std::vector<at::Tensor> leaves) {
  for (at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
  std::vector<at::Tensor> all = {layer()};
  all[0].backward(at::ones_like(all[0]).cumsum(0));
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

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
  const at::Tensor x = leaf({512, 384}), weight = leaf({384, 256}), bias = leaf({256});
  const at::Tensor head = leaf({256, 384});
  const auto linear = [&](Products products) {
    return results([&] { return Linear{weight, bias, products}(x); }, {x, weight});
  };
  const auto projected = [&](Products products) {
    return results([&] { return project(x, head, products); }, {x, head});
  };
  const auto addmm = results([&] { return at::addmm(bias, x, weight); }, {x, weight});
  const auto mm = results([&] { return at::mm(x, head.t()); }, {x, head});
  const auto num_onednn_products = [](const auto& multiply) {
    return operator_calls_of(multiply)["mkldnn::_linear_pointwise"];
  };
  std::vector<at::Tensor> blas, blas_of_head, own, own_of_head;
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
    EXPECT_LT(distance(own[i], addmm[i]), 1e-5) << i;
    EXPECT_LT(distance(own_of_head[i], mm[i]), 1e-5) << i;
  }
}

// Where an element lies among the others changes no bit of it.
TEST(Gelu, OursIsThatOfTheFormulaAtEveryPosition) {
  if (at::get_cpu_capability() == "DEFAULT") GTEST_SKIP() << "this CPU has no AVX2";
  at::manual_seed(5);
  const at::Tensor x = at::randn(2077) * 2, dy = at::randn(2077);
  x[2000].fill_(-100), x[2001].fill_(100);
  const auto computed = [](const auto& formula, const at::Tensor& of, const at::Tensor& by) {
    const at::Tensor x_leaf = of.clone().set_requires_grad(true), y = formula(x_leaf);
    y.backward(by);
    return std::vector{y, x_leaf.grad()};
  };
  const auto ours = computed(gelu_with_avx2, x, dy);
  const auto of_a_part = computed(gelu_with_avx2, x.slice(0, 5), dy.slice(0, 5));
  const auto wanted = computed([](const at::Tensor& of) { return at::gelu(of, "tanh"); },
                               x.to(at::kDouble), dy.to(at::kDouble));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_LT((ours[i] - wanted[i]).abs().max().item<double>(), 2e-6) << i;
    EXPECT_TRUE(of_a_part[i].equal(ours[i].slice(0, 5))) << i;
  }
}

// The CPU has two of them.
TEST(AttentionBackend, IsWhatLibtorchTakes) {
  const ModelOptions model;
  EXPECT_EQ(attention_backend(model, at::kCPU), "flash");
  at::globalContext().setSDPUseFlash(false);
  EXPECT_EQ(attention_backend(model, at::kCPU), "math");
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
  EXPECT_LT(distance(Linear{weight, {}}(x), at::mm(x, weight)), 1e-14);
}

// ---- 16 bits

at::Tensor narrow_leaf(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape).to(type).set_requires_grad(true);
}

at::Tensor wide_copy(const at::Tensor& narrow) {
  return narrow.detach().to(at::kDouble).set_requires_grad(true);
}

class NarrowTest : public ::testing::TestWithParam<at::ScalarType> {};

// Values and gradients are those of exact arithmetic, rounded: sums are longer than 256 ones, at
// which a sum in bf16 would stop to grow.
TEST_P(NarrowTest, ProductsAddUpInFp32) {
  at::manual_seed(4);
  const double tolerance = GetParam() == at::kHalf ? 2e-3 : 1.2e-2;
  for (const auto& [rows, in, out] :
       {std::tuple{1, 1, 1}, {3, 33, 7}, {33, 600, 65}, {600, 24, 258}}) {
    const at::Tensor x = narrow_leaf({rows, in}, GetParam()),
                     w = narrow_leaf({in, out}, GetParam());
    const at::Tensor b = narrow_leaf({out}, GetParam());
    const at::Tensor dy = at::randn({rows, out}).to(GetParam());
    const at::Tensor y = Linear{w, b}(x);
    y.backward(dy);
    EXPECT_EQ(y.scalar_type(), GetParam());
    const at::Tensor X = wide_copy(x), W = wide_copy(w), B = wide_copy(b);
    at::addmm(B, X, W).backward(dy.to(at::kDouble));
    EXPECT_LT(distance(y, at::addmm(B, X, W)), tolerance);
    EXPECT_LT(distance(x.grad(), X.grad()), tolerance);
    EXPECT_LT(distance(w.grad(), W.grad()), tolerance);
    EXPECT_LT(distance(b.grad(), B.grad()), tolerance);
  }
  const at::Tensor ones = at::ones({64, 512}, GetParam());
  EXPECT_TRUE(project(ones, ones).eq(512).all().item<bool>());
}

TEST_P(NarrowTest, AttentionAndLayerNormAreThoseOfDoublePrecision) {
  at::manual_seed(5);
  const double tolerance = GetParam() == at::kHalf ? 5e-3 : 4e-2;
  for (const int heads : {1, 2}) {
    const Attention narrow{{narrow_leaf({20, 60}, GetParam()), narrow_leaf({60}, GetParam())},
                           {narrow_leaf({20, 20}, GetParam()), narrow_leaf({20}, GetParam())},
                           heads};
    const Attention wide{{wide_copy(narrow.c_attn.weight), wide_copy(narrow.c_attn.bias)},
                         {wide_copy(narrow.c_proj.weight), wide_copy(narrow.c_proj.bias)},
                         heads};
    const at::Tensor x = (narrow_leaf({2, 9, 20}, GetParam()).detach() / 4).set_requires_grad(true);
    const at::Tensor X = wide_copy(x), dy = at::randn({2, 9, 20}).to(GetParam());
    const at::Tensor y = narrow(x), Y = wide(X);
    y.backward(dy);
    Y.backward(dy.to(at::kDouble));
    EXPECT_LT(distance(y, Y), tolerance);
    EXPECT_LT(distance(x.grad(), X.grad()), tolerance);
    EXPECT_LT(distance(narrow.c_attn.weight.grad(), wide.c_attn.weight.grad()), tolerance);
  }
  const at::Tensor x = narrow_leaf({30, 48}, GetParam()), X = wide_copy(x);
  const LayerNorm norm{narrow_leaf({48}, GetParam()), narrow_leaf({48}, GetParam())};
  const LayerNorm reference{wide_copy(norm.weight), wide_copy(norm.bias)};
  const at::Tensor y = norm(x), Y = reference(X);
  y.backward(at::ones_like(y));
  Y.backward(at::ones_like(Y));
  EXPECT_EQ(y.scalar_type(), GetParam());
  EXPECT_LT(distance(y, Y), tolerance);
  EXPECT_LT(distance(norm.weight.grad(), reference.weight.grad()), tolerance);
}

// Thousands of tokens: a sum in 16 bits would be off by 30%.
TEST_P(NarrowTest, GradientsAreAddedUpOverTokensInFp32) {
  at::manual_seed(7);
  const at::Tensor x = narrow_leaf({4096, 16}, GetParam()), X = wide_copy(x);
  const LayerNorm norm{narrow_leaf({16}, GetParam()), narrow_leaf({16}, GetParam())};
  const LayerNorm reference{wide_copy(norm.weight), wide_copy(norm.bias)};
  const at::Tensor dy = (0.1 * at::randn({4096, 16}) + 0.05).to(GetParam());
  norm(x).backward(dy);
  reference(X).backward(dy.to(at::kDouble));
  EXPECT_LT(distance(norm.bias.grad(), reference.bias.grad()), 5e-3);
  EXPECT_LT(distance(norm.weight.grad(), reference.weight.grad()), 5e-3);
  EXPECT_LT(distance(x.grad(), X.grad()), 2e-2);
  const at::Tensor table = narrow_leaf({3, 16}, GetParam());
  const at::Tensor tokens = at::randint(3, {4096}, at::kLong);
  look_up(table, tokens).backward(dy);
  const at::Tensor wanted =
      at::zeros({3, 16}, at::kDouble).index_add_(0, tokens, dy.to(at::kDouble));
  EXPECT_LT(distance(table.grad(), wanted), 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowTest, ::testing::Values(at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace ladder
