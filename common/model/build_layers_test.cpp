#include "common/model/build_layers.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/family.hpp"
#include "common/model/model_cost.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/operator_calls.hpp"

namespace ladder {
namespace {

// A Llama's heads share their keys and values.
ModelOptions tiny(bool tied, ModelFamily family = ModelFamily::kGpt2) {
  return {.family = family,
          .vocab_size = 13,
          .context = 8,
          .layers = 2,
          .heads = 3,
          .kv_heads = traits_of(family).has_kv_heads() ? 1 : 0,
          .channels = 12,
          .tie_embeddings = tied};
}

std::vector<ModelOptions> all_tiny() {
  std::vector<ModelOptions> all;
  for (const ModelFamily family : all_families())
    for (const bool tied : {true, false}) all.push_back(tiny(tied, family));
  return all;
}

std::string trace_of(const ModelOptions& options) {
  return concat(traits_of(options.family).name(), options.tie_embeddings ? ", tied" : ", untied");
}

// The vocabulary has 50257 tokens, or 50304 if padded to a multiple of 64.
TEST(BuildLayers, Gpt2SmallHasItsKnownNumberOfParameters) {
  ModelOptions options{
      .vocab_size = 50257, .context = 1024, .layers = 12, .heads = 12, .channels = 768};
  EXPECT_EQ(count_parameters(build_layers(options, 0, {}, at::kMeta)), 124439808);
  options.vocab_size = 50304;
  EXPECT_EQ(count_parameters(build_layers(options, 0, {}, at::kMeta)), 124475904);
}

// The model does not know its objective; here, a sum of cross-entropies will do.
at::Tensor loss_sum(const Model& model, const at::Tensor& tokens, const at::Tensor& targets) {
  return at::cross_entropy_loss(widened(model.forward(tokens)).flatten(0, 1), targets.flatten(), {},
                                at::Reduction::Sum);
}

// How often a forward calls oneDNN's product.
int num_onednn_products(const Layer& layer, const at::Tensor& input) {
  return operator_calls_of([&] { layer.forward(input); })["mkldnn::_linear_pointwise"];
}

TEST(BuildLayers, ChosenProductsReachEveryLayer) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({7, 8, 12});
  for (const Products products : {Products::kOneDnn, Products::kBlas}) {
    for (ModelOptions options : all_tiny()) {
      options.products = products;
      const Model model = build_layers(options, 1);
      const FamilyTraits& traits = traits_of(options.family);
      const std::int64_t of_block = (traits.has_joint_qkv() ? 2 : 4) + traits.mlp_matrices();
      const bool is_onednn = products == Products::kOneDnn;
      EXPECT_EQ(num_onednn_products(model.layers[1], x), is_onednn ? of_block : 0);
      EXPECT_EQ(num_onednn_products(model.layers[2], x), is_onednn ? of_block : 0);
      EXPECT_EQ(num_onednn_products(model.layers[3], x), is_onednn ? 1 : 0);
    }
  }
}

// What a forward of these many rows leaves for backward, but for the loss and the number of targets.
std::int64_t measured_activation_bytes(const ModelOptions& options, std::int64_t rows) {
  const Model model = build_layers(options, 1);
  const at::Tensor tokens = at::zeros({rows, options.context}, at::kLong);
  const std::int64_t before = read_memory().live(MemoryCategory::kActivations);
  const at::Tensor loss = loss_sum(model, tokens, tokens);
  return read_memory().live(MemoryCategory::kActivations) - before - 2 * 4;
}

TEST(BuildLayers, ForwardSavesTheActivationsOfTheFormula) {
  install_memory_ledger();
  struct Shape {
    std::int64_t rows, context, layers, heads, channels, vocab_size;
    std::vector<std::int64_t> kv_heads;
  };
  for (const Shape& shape :
       {Shape{4, 16, 2, 2, 8, 13, {1, 2}}, Shape{1, 1, 1, 1, 2, 1, {1}},
        Shape{2, 7, 3, 3, 12, 50, {1, 3}}, Shape{3, 128, 1, 4, 32, 258, {1, 2, 4}}}) {
    for (const auto& [tied, type] : {std::pair{true, at::kFloat},
                                     {false, at::kFloat},
                                     {true, at::kBFloat16},
                                     {false, at::kHalf}}) {
      ModelOptions options{.vocab_size = shape.vocab_size,
                           .context = shape.context,
                           .layers = shape.layers,
                           .heads = shape.heads,
                           .channels = shape.channels,
                           .tie_embeddings = tied,
                           .precision = {format_of(type)}};
      const auto expect_formula = [&] {
        for (const auto& [recompute, name] : {std::pair{Recompute::kNone, ""},
                                              {Recompute::kCheap, ", cheap"},
                                              {Recompute::kBlocks, ", blocks"}}) {
          options.recompute = recompute;
          EXPECT_EQ(measured_activation_bytes(options, shape.rows),
                    saved_activation_bytes(options, shape.rows))
              << trace_of(options) << " " << shape.context << " " << type << " --kv-heads "
              << options.kv_heads << name;
        }
      };
      for (const GeluForm gelu : {GeluForm::kExact, GeluForm::kTanh}) {
        options.gelu = gelu;
        expect_formula();
      }
      for (const std::int64_t kv_heads : shape.kv_heads) {
        options.kv_heads = kv_heads;
        for (const auto& [family, head_channels] : {std::pair(ModelFamily::kLlama, 0),
                                                    {ModelFamily::kQwen2, 6},
                                                    {ModelFamily::kQwen3, 16},
                                                    {ModelFamily::kSmolLm3, 6},
                                                    {ModelFamily::kOlmo2, 10}}) {
          options.family = family;
          options.no_rope_interval = family == ModelFamily::kSmolLm3 ? 1 : 0;
          options.head_channels = head_channels;
          expect_formula();
        }
      }
    }
  }
}

// A plan counts what any CPU would save, or a GPU, and asks nobody which one this is. Per token and
// block, GPT-2 saves 14 numbers per channel and two statistics for each of two norms, with 4 for
// queries, keys, values and a copy of the result in fp32, or all probabilities.
TEST(BuildLayers, WhatAPlanCountsDoesNotDependOnThisCpu) {
  ModelOptions options{.context = 128, .heads = 4, .channels = 128};
  const auto saved = [&](Device device) {
    return layer_activations(options, /*num_rows=*/2, device, /*num_threads=*/1)[1].saved / 256;
  };
  EXPECT_EQ(saved(Device::kCpu), 4 * (16 * 128 + 4 + 4));
  options.precision.params = NumberFormat::kFp16;
  EXPECT_EQ(saved(Device::kCpu), 2 * 13 * 128 + 16 + 4 * (4 * 128 + 4));
  options.precision.params = NumberFormat::kBf16;
  EXPECT_EQ(saved(Device::kCpu), 2 * 13 * 128 + 16 + 4 * (4 * 128 + 4));
  EXPECT_EQ(saved(Device::kCuda), 2 * 16 * 128 + 16 + 4 * 4);
  options.heads = 16;  // the probabilities are more
  EXPECT_EQ(saved(Device::kCpu), 2 * (13 * 128 + 3 * 128 + 16 * 128) + 16);
  EXPECT_EQ(saved(Device::kCuda), 2 * 16 * 128 + 16 + 4 * 16);
}

// An MLP may have another width.
TEST(BuildLayers, TheMlpsWidthIsAnOption) {
  install_memory_ledger();
  for (ModelOptions options : all_tiny()) {
    const std::int64_t num_matrices = traits_of(options.family).mlp_matrices();
    const std::int64_t by_default = num_matrices == 3 ? 32 : 48;
    EXPECT_EQ(completed(options).mlp_channels, by_default);
    const std::int64_t before = forward_flops(options)[1];
    options.mlp_channels = 20;
    EXPECT_EQ(before - forward_flops(options)[1], 2 * num_matrices * 12 * (by_default - 20));
    EXPECT_EQ(measured_activation_bytes(options, 2), saved_activation_bytes(options, 2));
    const std::vector<NamedTensor> block = build_layers(options, 1).layers[1].unit.tensors;
    EXPECT_TRUE(std::any_of(block.begin(), block.end(), [](const NamedTensor& named) {
      return named.tensor.numel() == 12 * 20;
    }));
  }
}

// So may heads, of all families but GPT-2: queries are not as wide as the residual stream.
TEST(BuildLayers, AHeadsWidthIsAnOption) {
  ModelOptions options = tiny(true, ModelFamily::kLlama);
  EXPECT_EQ(completed(options).head_channels, 4);
  const std::int64_t before = forward_flops(options)[1];
  const std::int64_t parameters = count_parameters(build_layers(options, 1));
  options.head_channels =
      10;  // 3 heads of queries, 1 of keys and of values: 18 channels, 6 and 6 more
  EXPECT_EQ(forward_flops(options)[1] - before, 2 * 12 * (2 * 18 + 6 + 6) + 2 * 2 * 18 * 8);
  EXPECT_EQ(count_parameters(build_layers(options, 1)) - parameters, 2 * 12 * (2 * 18 + 6 + 6));
  options.heads = 5;  // which does not divide the 12 channels
  EXPECT_NO_THROW(validate(options));
}

TEST(BuildLayers, WeightsStartAtRandomAndNormsAtOne) {
  for (const ModelFamily family : all_families()) {
    const ModelOptions options{.family = family, .layers = 8, .channels = 64};
    for (const auto& [name, tensor] : build_layers(options, 3).leaves()) {
      const bool is_back = name.find("c_proj") != std::string::npos ||
                           name.find("o_proj") != std::string::npos ||
                           name.find("down_proj") != std::string::npos;
      const double wanted = tensor.dim() == 1 ? 0 : is_back ? 0.02 / 4 : 0.02;  // √(2 · 8) = 4
      EXPECT_NEAR(tensor.std().item<double>(), wanted, 0.05 * wanted) << name;
      const double mean = tensor.dim() == 1 && name.ends_with("weight") ? 1 : 0;
      EXPECT_NEAR(tensor.mean().item<double>(), mean, 0.1 * wanted) << name;
    }
  }
}

TEST(BuildLayers, StartDependsOnSeedAndNameAlone) {
  for (const ModelFamily family : all_families()) {
    const auto leaves = [&](bool tied, std::uint64_t seed) {
      return build_layers(tiny(tied, family), seed).leaves();
    };
    const auto tied = leaves(true, 5), untied = leaves(false, 5), other_seed = leaves(true, 6);
    for (std::size_t i = 0; i < tied.size(); ++i) {
      EXPECT_TRUE(tied[i].tensor.equal(untied[i].tensor)) << tied[i].name;
      if (tied[i].tensor.dim() == 1) continue;
      EXPECT_FALSE(tied[i].tensor.equal(other_seed[i].tensor)) << tied[i].name;
    }
    const std::vector<Unit> units = build_layers(tiny(true, family), 5).units();
    const auto matrix = [](const Unit& unit) {
      return std::ranges::find_if(unit.tensors, [](const auto& t) { return t.tensor.dim() == 2; })
          ->tensor;
    };
    EXPECT_FALSE(matrix(units[1]).equal(matrix(units[2])));
  }
}

// Compares the gradient of the loss along a direction with a central difference of the loss.
TEST(BuildLayers, GradientMatchesFiniteDifferences) {
  at::manual_seed(4);
  for (const ModelOptions& options : all_tiny()) {
    SCOPED_TRACE(trace_of(options));
    const Model model = build_layers(options, 2);
    const at::Tensor tokens = at::randint(13, {2, 8}, at::kLong), targets = tokens.roll(-1, 1);
    loss_sum(model, tokens, targets).backward();
    // A norm makes what comes from small weights large, and so the loss more curved in them.
    const double distance = traits_of(options.family).qk_norm() != QkNorm::kNone ? 3e-3 : 1e-2;
    at::NoGradGuard no_grad;
    for (const auto& [name, leaf] : model.leaves()) {
      const at::Tensor gradient = leaf.grad();
      const double length = gradient.norm().item<double>();
      // GPT-2's key bias: zero in exact arithmetic; and what this seed hardly turns.
      if (length < 0.05) continue;
      at::Tensor parameter = leaf.detach();
      const at::Tensor saved = parameter.clone(), step = gradient * (distance / length);
      parameter.add_(step);
      const double above = loss_sum(model, tokens, targets).item<double>();
      parameter.copy_(saved - step);
      const double below = loss_sum(model, tokens, targets).item<double>();
      parameter.copy_(saved);
      EXPECT_NEAR((above - below) / (2 * distance) / length, 1.0, 0.03) << name;
    }
  }
}

TEST(BuildLayers, ImpossibleShapesNameTheOption) {
  const auto refused = [](ModelOptions options, const std::string& part) {
    expect_throws<UsageError>([&] { build_layers(options, 1); }, {part});
  };
  for (ModelOptions options : all_tiny()) {
    options.heads = 5;
    refused(options, "--heads 5");
    options.layers = 0;
    refused(options, "--layers is 0");
  }
  ModelOptions options = tiny(true);
  options.kv_heads = 1;
  refused(options, "--kv-heads 1 is for --model llama");
  options.kv_heads = 3;
  EXPECT_NO_THROW(validate(options));
  options.rope_theta = 500;
  refused(options, "--rope-theta 500 is for --model llama");
  options = tiny(true);
  options.rope_scaling = "linear:2";
  refused(options, "--rope-scaling linear:2 is for --model llama, qwen2, qwen3");
  options = tiny(true);
  options.head_channels = 5;
  refused(options, "--head-channels 5 is for --model llama, qwen2, qwen3");
  options.family = ModelFamily::kQwen3;
  refused(options, "--head-channels 5 make heads of 5 channels");
  options = tiny(true, ModelFamily::kOlmo2);
  options.kv_heads = options.product_parts = 3;
  refused(options, "--product-parts 3 (by default as many as --tensor-ranks) cuts the heads");
  options = tiny(true, ModelFamily::kLlama);
  for (const char* scaling :
       {"", "yarn:4", "linear:", "linear:0", "linear:-2", "linear:2:", "linear:2x", "linear:2:3",
        "llama3:8:1:4", "llama3:8:4:1:64", "llama3:8:1:4:8.5", "llama3:8:1:4:1e30"}) {
    options.rope_scaling = scaling;
    refused(options, concat("--rope-scaling is '", scaling, "'"));
  }
  options = tiny(true, ModelFamily::kLlama);
  options.kv_heads = 2;
  refused(options, "--heads 3 is not a multiple of --kv-heads 2");
  options.heads = options.kv_heads = 4;
  refused(options, "make heads of 3 channels");
}

// A caller that cannot hold all units frees each one's memory before the next is created.
TEST(BuildLayers, HandsOutEachUnitBeforeTheNextIsMade) {
  for (const ModelOptions& options : all_tiny()) {
    std::vector<std::string> names, wanted;
    std::vector<at::Tensor> kept;
    const Model whole = build_layers(options, /*seed=*/3);
    const Model in_pieces = build_layers(options, /*seed=*/3, [&](const Unit& unit) {
      names.push_back(unit.name);
      for (const NamedTensor& named : unit.tensors) {
        kept.push_back(named.tensor.detach().clone());
        at::Tensor(named.tensor).set_data(at::zeros({1}));
      }
    });
    for (const Unit& unit : whole.units()) wanted.push_back(unit.name);
    const std::vector<NamedTensor> leaves = whole.leaves();
    for (std::size_t i = 0; i < leaves.size(); ++i) EXPECT_TRUE(kept[i].equal(leaves[i].tensor));
    EXPECT_EQ(names, wanted);
    EXPECT_EQ(in_pieces.units()[1].tensors[0].tensor.numel(), 1);
  }
}

// A pipeline's first, middle and last stage, run in turn, compute what the whole model computes.
using Layers = std::vector<std::int64_t>;
TEST(BuildLayers, PartsMakeUpTheWhole) {
  at::manual_seed(6);
  const at::Tensor tokens = at::randint(13, {2, 8}, at::kLong);
  for (const ModelOptions& options : all_tiny()) {
    const Model whole = build_layers(options, 5);
    at::Tensor x = tokens;
    std::vector<std::string> names;
    for (const std::vector<std::int64_t>& layers : {Layers{0, 1}, {2}, {3}}) {
      const Model stage = build_layers(options, 5, layers);
      EXPECT_EQ(stage.layers.size(), layers.size());
      for (const Unit& unit : stage.units()) names.push_back(unit.name);
      x = stage.forward(x);
    }
    EXPECT_TRUE(x.equal(whole.forward(tokens)));
    EXPECT_EQ(names, (std::vector<std::string>{"embedding", "block0", "block1", "head"}));
  }
}

TEST(BuildLayers, ATiedHeadReadsTheEmbeddingOrHasACopy) {
  for (const ModelFamily family : all_families()) {
    const ModelOptions options = tiny(true, family);
    const std::size_t num_norms = family_of(options)->final_norm().size();
    const Model whole = build_layers(tiny(true, family), 5);
    EXPECT_EQ(whole.layers.back().reads, std::size_t{0});
    EXPECT_EQ(whole.layers.back().unit.tensors.size(), num_norms);
    EXPECT_EQ(build_layers(tiny(false, family), 5).layers.back().reads, std::nullopt);
    const Model last = build_layers(tiny(true, family), 5, Layers{3});
    EXPECT_EQ(last.layers[0].reads, std::nullopt);
    const NamedTensor& copy = last.layers[0].unit.tensors.at(num_norms);
    EXPECT_EQ(copy.name, whole.layers[0].unit.tensors[0].name);
    EXPECT_TRUE(copy.tensor.equal(whole.layers[0].unit.tensors[0].tensor));
    // As with interleaving: the layers of a part need not be neighbors.
    const Model ends = build_layers(tiny(true, family), 5, Layers{0, 3});
    EXPECT_EQ(ends.layers[1].reads, std::size_t{0});
    EXPECT_EQ(ends.layers[1].unit.tensors.size(), num_norms);
  }
}

TEST(BuildLayers, RefusesWhatIsNoPartOfIt) {
  for (const Layers& layers : {Layers{}, {-1, 2}, {2, 2}, {3, 1}, {0, 4}})
    EXPECT_THROW(build_layers(tiny(true), 5, layers), CheckError) << layers.size();
}

// Six times the parameters of the products, per token, is the usual estimate of forward and
// backward.
TEST(BuildLayers, FlopsAreTwoPerParameterOfAProductAndAttention) {
  const ModelOptions gpt2 = {
      .vocab_size = 50257, .context = 1024, .layers = 12, .heads = 12, .channels = 768};
  ModelOptions smollm2 = *named_model("smollm2-135m").shape;
  smollm2.context = 2048;
  const std::int64_t of_smollm2 = 576 * (576 + 192 + 192 + 576 + 3 * 1536);
  for (const auto& [options, products] :
       {std::pair{gpt2, std::int64_t{12 * 768 * 768}}, {smollm2, of_smollm2}}) {
    const std::vector<std::int64_t> flops = forward_flops(options);
    ASSERT_EQ(std::ssize(flops), options.layers + 2);
    EXPECT_EQ(flops.front(), 0);
    EXPECT_EQ(flops[1], 2 * products + 4 * options.channels * options.context);
    EXPECT_EQ(flops[static_cast<std::size_t>(options.layers)], flops[1]);
    EXPECT_EQ(flops.back(), 2 * options.channels * options.vocab_size);
    // PaLM, appendix B: 6 per parameter of a product, and attention's.
    EXPECT_EQ(training_flops(options),
              6 * (options.layers * products + options.channels * options.vocab_size) +
                  12 * options.layers * options.channels * options.context);
  }
}

}  // namespace
}  // namespace ladder
