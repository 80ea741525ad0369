#include "common/model/gpt.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

GptOptions tiny(bool tied) {
  return {.vocab_size = 13,
          .context = 8,
          .layers = 2,
          .heads = 3,
          .channels = 12,
          .tie_embeddings = tied};
}

// 50257 tokens, or 50304 where the vocabulary is padded to a multiple of 64.
TEST(Gpt, Gpt2SmallHasItsKnownNumberOfParameters) {
  GptOptions options{
      .vocab_size = 50257, .context = 1024, .layers = 12, .heads = 12, .channels = 768};
  EXPECT_EQ(count_parameters(Gpt(options, 0, at::kMeta).units()), 124439808);
  options.vocab_size = 50304;
  EXPECT_EQ(count_parameters(Gpt(options, 0, at::kMeta).units()), 124475904);
}

TEST(Gpt, ChosenProductsReachEveryLinearLayer) {
  for (const Products products : {Products::kOneDnn, Products::kBlas}) {
    GptOptions options = tiny(true);
    options.products = products;
    const Gpt model(options, 1);
    for (const Block& block : model.blocks()) {
      for (const Linear* layer :
           {&block.attn.c_attn, &block.attn.c_proj, &block.c_fc, &block.c_proj})
        EXPECT_EQ(layer->products, products);
    }
    EXPECT_EQ(model.head().products, products);
  }
}

TEST(Gpt, ForwardSavesTheActivationsOfTheFormula) {
  install_memory_ledger();
  struct Shape {
    std::int64_t rows, context, layers, heads, channels, vocab_size;
  };
  for (const Shape& shape : {Shape{4, 16, 2, 2, 8, 13}, Shape{1, 1, 1, 1, 1, 1},
                             Shape{2, 7, 3, 3, 12, 50}, Shape{3, 128, 1, 4, 32, 258}}) {
    for (const bool tied : {true, false}) {
      const GptOptions options{.vocab_size = shape.vocab_size,
                               .context = shape.context,
                               .layers = shape.layers,
                               .heads = shape.heads,
                               .channels = shape.channels,
                               .tie_embeddings = tied};
      const Gpt model(options, 1);
      const at::Tensor tokens = at::zeros({shape.rows, shape.context}, at::kLong);
      const std::int64_t before = read_memory().live(MemoryCategory::kActivations);
      const at::Tensor loss = model.loss_sum(tokens, tokens);
      const std::int64_t scalars = 2 * 4;  // the loss, and the number of targets
      EXPECT_EQ(read_memory().live(MemoryCategory::kActivations) - before - scalars,
                saved_activation_bytes(options, shape.rows))
          << shape.context;
    }
  }
}

TEST(Gpt, UnitsNameEveryTensorOnce) {
  for (const bool tied : {true, false}) {
    const std::vector<Unit> units = Gpt(tiny(tied), 1).units();
    ASSERT_EQ(units.size(), 4u);
    EXPECT_EQ(units[0].name, "embedding");
    EXPECT_EQ(units[2].name, "block1");
    EXPECT_EQ(units[3].name, "head");
    std::set<std::string> names;
    for (const Unit& unit : units) {
      for (const NamedTensor& named : unit.tensors) {
        names.insert(named.name);
        EXPECT_TRUE(named.tensor.requires_grad()) << named.name;
      }
    }
    EXPECT_EQ(names.size(), 2u + 2 * 12 + 2 + (tied ? 0 : 1));
    EXPECT_EQ(names.count("h.1.mlp.c_proj.weight"), 1u);
    EXPECT_EQ(names.count("lm_head.weight"), tied ? 0u : 1u);
  }
}

TEST(Gpt, StartsNearTheUniformGuess) {
  at::manual_seed(1);
  const Gpt model(tiny(true), 1);
  const at::Tensor tokens = at::randint(13, {4, 8}, at::kLong);
  const double loss = model.loss_sum(tokens, tokens.roll(1, 1)).item<double>() / 32;
  EXPECT_NEAR(loss, std::log(13.0), 0.1);
}

TEST(Gpt, StartDependsOnSeedAndNameAlone) {
  const std::vector<Unit> tied = Gpt(tiny(true), 5).units(), untied = Gpt(tiny(false), 5).units();
  const std::vector<Unit> other_seed = Gpt(tiny(true), 6).units();
  for (std::size_t u = 0; u < 3; ++u) {
    for (std::size_t t = 0; t < tied[u].tensors.size(); ++t) {
      EXPECT_TRUE(tied[u].tensors[t].tensor.equal(untied[u].tensors[t].tensor))
          << tied[u].tensors[t].name;
    }
  }
  EXPECT_FALSE(tied[1].tensors[2].tensor.equal(other_seed[1].tensors[2].tensor));
  EXPECT_FALSE(tied[1].tensors[2].tensor.equal(tied[2].tensors[2].tensor));
}

TEST(Gpt, PaddingHasNoLossAndNoGradient) {
  at::manual_seed(2);
  const Gpt model(tiny(true), 1);
  const at::Tensor tokens = at::randint(13, {2, 8}, at::kLong);
  at::Tensor targets = tokens.roll(-1, 1);
  targets.slice(1, 5).fill_(-100);
  const at::Tensor padded = model.loss_sum(tokens, targets);
  const at::Tensor cut = model.loss_sum(tokens.slice(1, 0, 5), targets.slice(1, 0, 5));
  EXPECT_NEAR(padded.item<double>(), cut.item<double>(), 1e-4);

  const at::Tensor nothing = model.loss_sum(tokens, at::full_like(targets, -100));
  nothing.backward();
  EXPECT_EQ(nothing.item<float>(), 0.0f);
  EXPECT_EQ(model.embedding().wte.grad().abs().max().item<float>(), 0.0f);
}

// The gradient of the loss along a direction, against the loss itself a little to both sides.
TEST(Gpt, GradientMatchesFiniteDifferences) {
  at::manual_seed(4);
  for (const bool tied : {true, false}) {
    const Gpt model(tiny(tied), 2);
    const at::Tensor tokens = at::randint(13, {2, 8}, at::kLong), targets = tokens.roll(-1, 1);
    model.loss_sum(tokens, targets).backward();
    at::NoGradGuard no_grad;
    for (const Unit& unit : model.units()) {
      for (const NamedTensor& named : unit.tensors) {
        const at::Tensor gradient = named.tensor.grad();
        const double length = gradient.norm().item<double>();
        if (length < 0.05) continue;  // the key bias: zero in exact arithmetic
        at::Tensor parameter = named.tensor.detach();
        const at::Tensor saved = parameter.clone(), step = gradient * (1e-2 / length);
        parameter.add_(step);
        const double above = model.loss_sum(tokens, targets).item<double>();
        parameter.copy_(saved - step);
        const double below = model.loss_sum(tokens, targets).item<double>();
        parameter.copy_(saved);
        EXPECT_NEAR((above - below) / (2 * 1e-2) / length, 1.0, 0.03) << named.name;
      }
    }
  }
}

TEST(Gpt, ImpossibleShapesNameTheOption) {
  GptOptions options = tiny(true);
  options.heads = 5;
  EXPECT_THROW(Gpt(options, 1), UsageError);
  options = tiny(true);
  options.layers = 0;
  EXPECT_THROW(Gpt(options, 1), UsageError);
}

// Whoever cannot hold all units takes each one's memory away before the next is made.
TEST(Gpt, HandsOutEachUnitBeforeTheNextIsMade) {
  std::vector<std::string> names;
  std::vector<at::Tensor> kept;
  const Gpt whole({.context = 8, .layers = 2, .heads = 1, .channels = 16}, /*seed=*/3);
  const Gpt in_pieces(whole.options(), /*seed=*/3, [&](const Unit& unit) {
    names.push_back(unit.name);
    for (const NamedTensor& named : unit.tensors) {
      kept.push_back(named.tensor.detach().clone());
      at::Tensor(named.tensor).set_data(at::zeros({1}));
    }
  });
  std::vector<std::string> wanted;
  std::size_t i = 0;
  for (const Unit& unit : whole.units()) {
    wanted.push_back(unit.name);
    for (const NamedTensor& named : unit.tensors) EXPECT_TRUE(kept[i++].equal(named.tensor));
  }
  EXPECT_EQ(names, wanted);
  EXPECT_EQ(in_pieces.units()[1].tensors[0].tensor.numel(), 1);
}

}  // namespace
}  // namespace ladder
