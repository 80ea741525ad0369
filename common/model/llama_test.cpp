// Llama and its modules against formulas in double precision, written without them.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numbers>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/attention.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"
#include "common/model/llama_layers.hpp"
#include "common/model/model_options.hpp"
#include "common/model/weight_gradients.hpp"
#include "common/testing/differentiate.hpp"

namespace ladder {
namespace {

// ---- The formulas. x [B, T, H, d].

at::Tensor rms_norm_formula(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x / (x.pow(2).mean(-1, true) + epsilon).sqrt() * weight;
}

// Llama 3.1's: what turns more than `high` times in so many tokens stays, and what turns less than
// `low` times is slowed down.
double slowed(double speed, double factor, double low, double high, double tokens) {
  const double turns = tokens * speed / (2 * std::numbers::pi);
  if (turns > high) return speed;
  if (turns < low) return speed / factor;
  const double kept = (turns - low) / (high - low);
  return (1 - kept) * speed / factor + kept * speed;
}

at::Tensor rotary_formula(const at::Tensor& x, double theta, const std::string& scaling = "none") {
  const std::int64_t T = x.size(1), d = x.size(3);
  at::Tensor speeds = at::pow(theta, -at::arange(0, d, 2, at::kDouble) / d);
  if (scaling == "linear:2.5") speeds = speeds / 2.5;
  if (scaling == "llama3:8:1:3:24")
    for (std::int64_t i = 0; i < d / 2; ++i)
      speeds[i] = slowed(speeds[i].item<double>(), 8, 1, 3, 24);
  const at::Tensor half = at::arange(T, at::kDouble).unsqueeze(1) * speeds;
  const at::Tensor angles = at::cat({half, half}, -1).unsqueeze(1);  // [T, 1, d]
  const at::Tensor turned = at::cat({-x.slice(-1, d / 2), x.slice(-1, 0, d / 2)}, -1);
  return x * angles.cos() + turned * angles.sin();
}

at::Tensor attention_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t B = q.size(0), T = q.size(1), H = q.size(2), d = q.size(3), K = k.size(2);
  std::vector<at::Tensor> heads;
  const at::Tensor future = at::ones({T, T}).triu(1).to(at::kBool);
  for (std::int64_t h = 0; h < H; ++h) {
    const at::Tensor keys = k.select(2, h * K / H), values = v.select(2, h * K / H);
    const at::Tensor scores = at::matmul(q.select(2, h), keys.transpose(1, 2)) / std::sqrt(d);
    heads.push_back(at::matmul(
        scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1), values));
  }
  return at::cat(heads, -1).view({B, T, H * d});
}

at::Tensor swiglu_formula(const at::Tensor& gate, const at::Tensor& up) {
  return gate * gate.sigmoid() * up;
}

using Weights = std::map<std::string, at::Tensor>;  // by their names

at::Tensor llama_formula(const Weights& w, const at::Tensor& tokens, const ModelOptions& options) {
  const std::int64_t B = tokens.size(0), T = tokens.size(1), d = head_channels_of(options);
  const bool is_olmo2 = options.family == ModelFamily::kOlmo2;
  const auto norm = [&](const std::string& name, const at::Tensor& x) {
    return rms_norm_formula(x, w.at(name + ".weight"), options.norm_eps);
  };
  at::Tensor x = w.at("embed_tokens.weight").index_select(0, tokens.flatten()).view({B, T, -1});
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string layer = concat("layers.", i, ".");
    const auto linear = [&](const std::string& name, const at::Tensor& input) {
      const at::Tensor product = at::matmul(input, w.at(layer + name + "_proj.weight").t());
      const auto bias = w.find(layer + name + "_proj.bias");
      return bias == w.end() ? product : product + bias->second;
    };
    const auto before = [&](const char* name, const at::Tensor& y) {
      return is_olmo2 ? y : norm(layer + name + "_layernorm", y);
    };
    const auto after = [&](const char* name, const at::Tensor& y) {
      return is_olmo2 ? norm(layer + name + "_layernorm", y) : y;
    };
    const at::Tensor a = before("input", x);
    const auto heads = [&](const std::string& name) {
      const at::Tensor all = linear(name, a), of_each = all.view({B, T, -1, d});
      if (!w.contains(layer + name + "_norm.weight")) return of_each;
      return norm(layer + name + "_norm", is_olmo2 ? all : of_each).view({B, T, -1, d});
    };
    const auto turned = [&](const std::string& name) {
      if (options.no_rope_interval != 0 && (i + 1) % options.no_rope_interval == 0)
        return heads(name);
      return rotary_formula(heads(name), options.rope_theta, options.rope_scaling);
    };
    const at::Tensor mixed =
        attention_formula(turned("self_attn.q"), turned("self_attn.k"), heads("self_attn.v"));
    x = x + after("post_attention", linear("self_attn.o", mixed));
    const at::Tensor b = before("post_attention", x);
    const at::Tensor gated = swiglu_formula(linear("mlp.gate", b), linear("mlp.up", b));
    x = x + after("post_feedforward", linear("mlp.down", gated));
  }
  const char* head = options.tie_embeddings ? "embed_tokens.weight" : "lm_head.weight";
  return at::matmul(norm("norm", x), w.at(head).t());
}

ModelOptions tiny_llama(bool tied, std::int64_t kv_heads) {
  return {.family = ModelFamily::kLlama,
          .vocab_size = 13,
          .context = 12,
          .layers = 2,
          .heads = 6,
          .kv_heads = kv_heads,
          .channels = 24,
          .mlp_channels = 20,
          .tie_embeddings = tied,
          .rope_theta = 50,
          .norm_eps = 1e-3};
}

// Weights large enough for attention to choose, and norms that are not all 1.
Weights enlarge(const Model& model) {
  Weights weights;
  for (const auto& [name, leaf] : model.leaves()) {
    at::Tensor values = leaf.detach();
    values.copy_(at::randn(values.sizes()) * 0.2 + (values.dim() == 1 ? 1.0 : 0.0));
    weights[name] = values.to(at::kDouble).set_requires_grad(true);
  }
  return weights;
}

// T is smaller than the context, as when a short text is continued. libtorch's attention shares its
// work out among threads.
TEST(Llama, LogitsAndGradientsAreThoseOfTheFormulas) {
  at::manual_seed(1);
  for (const auto& [kv_heads, num_threads] : {std::pair{1, 1}, {2, 4}, {3, 1}, {6, 4}}) {
    at::set_num_threads(num_threads);
    for (const auto& [tied, type, tolerance] : {std::tuple{true, at::kFloat, 1e-5},
                                                {false, at::kFloat, 1e-5},
                                                {true, at::kBFloat16, 6e-2},
                                                {false, at::kHalf, 1e-2}}) {
      ModelOptions options = tiny_llama(tied, kv_heads);
      options.precision = {format_of(type)};
      const Model model = build_layers(options, 1);
      const Weights weights = enlarge(model);
      const at::Tensor tokens = at::randint(13, {3, 9}, at::kLong);
      const at::Tensor logits = model.forward(tokens);
      const at::Tensor wanted = llama_formula(weights, tokens, options);
      ASSERT_EQ(logits.scalar_type(), type);
      EXPECT_TRUE(close_in_norm(logits, wanted, tolerance));
      const at::Tensor dlogits = at::randn(logits.sizes()).to(type);
      logits.backward(dlogits);
      wanted.backward(dlogits.to(at::kDouble));
      for (const auto& [name, leaf] : model.leaves())
        EXPECT_TRUE(close_in_norm(leaf.grad(), weights.at(name).grad(), tolerance))
            << name << " " << type << " " << kv_heads;
    }
  }
  at::set_num_threads(1);
}

// The same, with biases of queries, keys and values, or with norms of the first two; with heads
// that are wider than their share of the channels; and with slower positions.
TEST(Llama, ItsRelativesAreThoseOfTheFormulas) {
  at::manual_seed(2);
  for (const auto& [family, num_tensors] : {std::pair(ModelFamily::kQwen2, 3 + 2 * (9 + 3)),
                                            {ModelFamily::kQwen3, 3 + 2 * (9 + 2)},
                                            {ModelFamily::kLlama, 3 + 2 * 9},
                                            {ModelFamily::kMistral, 3 + 2 * 9},
                                            {ModelFamily::kSmolLm3, 3 + 2 * 9},
                                            {ModelFamily::kOlmo2, 3 + 2 * (9 + 2)}}) {
    for (const std::int64_t head_channels : {0, 10}) {
      for (const char* scaling : {"none", "linear:2.5", "llama3:8:1:3:24"}) {
        for (const auto& [type, tolerance] : {std::pair(at::kFloat, 3e-5), {at::kBFloat16, 6e-2}}) {
          ModelOptions options = tiny_llama(/*tied=*/false, 2);
          options.family = family;
          if (family == ModelFamily::kSmolLm3) options.no_rope_interval = 2;
          options.head_channels = head_channels;
          options.rope_scaling = scaling;
          options.precision = {format_of(type)};
          const Model model = build_layers(options, 1);
          EXPECT_EQ(std::ssize(model.leaves()), num_tensors);
          const Weights weights = enlarge(model);
          const at::Tensor tokens = at::randint(13, {3, 9}, at::kLong);
          const at::Tensor logits = model.forward(tokens);
          const at::Tensor wanted = llama_formula(weights, tokens, options);
          EXPECT_TRUE(close_in_norm(logits, wanted, tolerance));
          if (type != at::kFloat) continue;
          const at::Tensor dlogits = at::randn(logits.sizes()).to(type);
          logits.backward(dlogits);
          wanted.backward(dlogits.to(at::kDouble));
          for (const auto& [name, leaf] : model.leaves())
            EXPECT_TRUE(close_in_norm(leaf.grad(), weights.at(name).grad(), tolerance))
                << name << " " << type << " " << head_channels << " " << scaling;
        }
      }
    }
  }
}

TEST(Llama, ItsRelativesHaveTheirKnownNumbersOfParameters) {
  const auto count = [](const char* name) {
    return count_parameters(build_layers(*named_model(name).shape, 0, {}, at::kMeta));
  };
  EXPECT_EQ(count("qwen2.5-0.5b"), 494032768);
  EXPECT_EQ(count("qwen3-0.6b"), 596049920);
  EXPECT_EQ(count("mistral-7b"), 7248023552);
  EXPECT_EQ(count("smollm3-3b"), 3075098624);
  EXPECT_EQ(count("olmo2-1b"), 1484916736);
}

TEST(Llama, SmolLm2HasItsKnownNumbersOfParametersAndNames) {
  const auto meta = [](const char* name) {
    return build_layers(*named_model(name).shape, 0, {}, at::kMeta);
  };
  const Model smaller = meta("smollm2-135m");
  EXPECT_EQ(count_parameters(smaller), 134515008);
  EXPECT_EQ(count_parameters(meta("smollm2-360m")), 361821120);
  // The width of the MLP is the family's own.
  EXPECT_EQ(completed({.family = ModelFamily::kLlama, .heads = 9, .channels = 576}).mlp_channels,
            1536);
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> shapes;
  for (const NamedTensor& named : smaller.layers[30].unit.tensors) {
    names.push_back(named.name.substr(std::string("layers.29.").size()));
    shapes.push_back(named.tensor.sizes().vec());
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "input_layernorm.weight", "self_attn.q_proj.weight",
                       "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                       "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                       "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}));
  EXPECT_EQ(shapes, (std::vector<std::vector<std::int64_t>>{{576},
                                                            {576, 576},
                                                            {192, 576},
                                                            {192, 576},
                                                            {576, 576},
                                                            {576},
                                                            {1536, 576},
                                                            {1536, 576},
                                                            {576, 1536}}));
  const std::vector<NamedTensor>& head = smaller.layers[31].unit.tensors;
  ASSERT_EQ(head.size(), 1u);
  EXPECT_EQ(head[0].name, "norm.weight");
}

// A zero-bubble pipeline: all products' wgrads later, all bits the same.
TEST(Llama, TheTwoHalvesOfBackwardAreTheWhole) {
  const ModelOptions options = tiny_llama(/*tied=*/false, 2);
  const Model whole = build_layers(options, 1), halved = build_layers(options, 1);
  const at::Tensor tokens = at::arange(24, at::kLong).view({2, 12}) % 13;
  whole.forward(tokens).square().sum().backward();
  WeightGradientQueue queue;
  int num_deferred = 0;
  {
    const DeferWeightGradients scope(&queue);
    halved.forward(tokens).square().sum().backward();
  }
  queue.run([&](const at::Tensor&) { ++num_deferred; });
  EXPECT_EQ(num_deferred, 2 * 7 + 1);
  const std::vector<NamedTensor> wanted = whole.leaves(), leaves = halved.leaves();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(leaves[i].tensor.grad().equal(wanted[i].tensor.grad())) << wanted[i].name;
}

// Thousands of tokens: a sum in 16 bits would be off by 30%.
TEST(RmsNorm, GradientsAreAddedUpOverTokensInFp32) {
  at::manual_seed(3);
  const auto formula = [](const Tensors& t) { return rms_norm_formula(t[0], t[1], 1e-5); };
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    expect_formula([](const Tensors& t) { return RmsNorm{t[1]}(t[0]); }, formula,
                   {at::randn({4096, 16}), at::ones({16})}, type, 5e-3);
}

// What Hugging Face's Llama computes in bf16: the normalized value is rounded, and then its product
// with the weight.
TEST(RmsNorm, RoundsBeforeTheWeight) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({50, 32}).to(at::kBFloat16), w = at::randn({32}).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor n = wide * (wide.pow(2).mean(-1, true) + 1e-5).rsqrt();
  EXPECT_TRUE(RmsNorm{w}(x).equal(w * n.to(at::kBFloat16)));
}

}  // namespace
}  // namespace ladder
