// GPT-2 (Radford et al. 2019): pre-norm blocks, GELU, learned positions, biases everywhere.

#include <ATen/ops/arange.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

struct Gpt2Embedding {
  TokenEmbedding wte;
  at::Tensor wpe;  // [context, C] of positions

  at::Tensor operator()(const at::Tensor& tokens) const {  // [B, T] int64 -> [B, T, C]
    const at::Tensor x = wte(to_device(tokens, wpe.device()));
    const std::int64_t T = tokens.size(1);
    if (wte.parts.total == 1) return x + wpe.slice(/*dim=*/0, 0, T);
    const auto add = [T](const at::Tensor& rows, const auto& weights, std::int64_t first) {
      const at::Tensor positions =
          at::arange(first, first + rows.size(0), rows.options().dtype(at::kLong)).remainder(T);
      return rows + look_up(weights[0], positions);
    };
    return over_rows(wte.parts, x, {wpe}, add);
  }
};

struct Mlp {
  Linear c_fc;    // [C] -> [M], 4C as a rule, or some of these channels
  Linear c_proj;  // [M] -> [C]
  GeluForm form;

  at::Tensor operator()(const at::Tensor& x) const { return c_proj(gelu(c_fc, x, form)); }
};

struct Gpt2Block {
  InRows<LayerNorm> ln_1;
  InParts<Attention> attn;
  InRows<LayerNorm> ln_2;
  InParts<Mlp> mlp;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    if (attn.parts.total > 1) {
      const at::Tensor y = x + attn(ln_1(x));
      return y + mlp(ln_2(y));
    }
    const auto [skip, n] = ln_1.module.fork(x);
    const auto [y, m] = ln_2.module.fork(skip, attn(n));
    return y + mlp(m);
  }
};

class Gpt2 final : public Family {
 public:
  explicit Gpt2(const ModelOptions& options) : Family(options) {}

  Embedding embedding(const ParameterMaker& make, const Parts& parts) const override {
    const std::int64_t C = options_.channels;
    Layer layer;
    const TokenEmbedding wte = token_embedding(make, layer.unit, parts);
    layer.forward = Gpt2Embedding{
        wte, make.normal(layer.unit, traits().positions_name(), {options_.context, C})};
    return {layer, wte.weights};
  }

  Layer block(const ParameterMaker& make, std::int64_t index, const Parts& parts) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t d = C / options_.heads;
    const std::string h = concat("h.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    // Each part has columns of the first product and its bias, and rows of the second one. The
    // second bias is added once: to the sum, if there is one.
    const auto columns = [&](const std::string& name, std::int64_t num_matrices, std::int64_t n,
                             std::int64_t grain) {
      const std::int64_t out = num_matrices * n;
      const auto weights = make.normal(layer.unit, h + name + ".weight", {C, out},
                                       cut_columns(C, out, grain, num_matrices), parts);
      const auto biases = make.constant(layer.unit, h + name + ".bias", out,
                                        cut_columns(1, out, grain, num_matrices), parts, 0);
      std::vector<Linear> linears;
      for (std::size_t part = 0; part < weights.size(); ++part)
        linears.push_back({weights[part], biases[part], options_.products});
      return linears;
    };
    const auto rows = [&](const std::string& name, std::int64_t n, std::int64_t grain) {
      const auto weights = make.normal(layer.unit, h + name + ".weight", {n, C},
                                       cut_rows(n, C, grain), parts, residual);
      const at::Tensor bias = make.constant(layer.unit, h + name + ".bias", C, 0), none;
      std::vector<Linear> linears;
      for (const at::Tensor& weight : weights)
        linears.push_back({weight, parts.total == 1 ? bias : none, options_.products});
      return std::pair(linears, parts.total == 1 ? none : bias);
    };
    const LayerNorm ln_1 = norm(make, layer.unit, h + "ln_1");
    const std::vector<Linear> c_attn = columns("attn.c_attn", 3, C, d);
    const auto [attn_proj, attn_bias] = rows("attn.c_proj", C, d);
    const LayerNorm ln_2 = norm(make, layer.unit, h + "ln_2");
    const std::vector<Linear> c_fc = columns("mlp.c_fc", 1, M, 1);
    const auto [mlp_proj, mlp_bias] = rows("mlp.c_proj", M, 1);
    Gpt2Block block = {{ln_1, parts}, {{}, attn_bias, parts}, {ln_2, parts}, {{}, mlp_bias, parts}};
    for (std::size_t part = 0; part < c_attn.size(); ++part) {
      block.attn.own.push_back({c_attn[part], attn_proj[part], d});
      block.mlp.own.push_back({c_fc[part], mlp_proj[part], options_.gelu});
    }
    layer.forward = block;
    return layer;
  }

  Layer final_norm(const ParameterMaker& make, const Parts& parts) const override {
    Layer layer;
    layer.forward = InRows<LayerNorm>{norm(make, layer.unit, "ln_f"), parts};
    return layer;
  }

  // The gradient of the residual stream; two of the MLP, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t fp32 = 4 * (C + std::max(2 * M, 6 * C));
    const std::int64_t bytes = options_.precision.has_16_bit_params() ? 2 * fp32 : fp32;
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  LayerNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return {make.constant(unit, name + ".weight", options_.channels, 1.0),
            make.constant(unit, name + ".bias", options_.channels, 0.0), options_.norm_eps};
  }
};

class Gpt2Traits final : public FamilyTraits {
 public:
  const char* name() const override { return "gpt2"; }
  const char* prefix() const override { return "transformer."; }
  const char* embedding_name() const override { return "wte.weight"; }
  const char* positions_name() const override { return "wpe.weight"; }
  bool has_kv_heads() const override { return false; }
  bool has_joint_qkv() const override { return true; }
  std::int64_t mlp_matrices() const override { return 2; }
  std::int64_t norm_statistics() const override { return 2; }

  std::unique_ptr<Family> make(const ModelOptions& options) const override {
    return std::make_unique<Gpt2>(options);
  }

  ModelConfig read(ConfigReader& config) const override {
    // All but the first two are names of one function.
    config.only("activation_function", {"gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh",
                                        "gelu_python_tanh", "gelu_fast", "gelu_accurate"});
    config.ignore({"n_ctx", "reorder_and_upcast_attn", "predict_special_tokens",
                   "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                   "summary_type", "summary_use_proj"});
    config.only_all("architectures", "GPT2");
    config.only("scale_attn_weights", {true});
    config.only("scale_attn_by_inverse_layer_idx", {false});
    ModelOptions model;
    model.vocab_size = config.extent("vocab_size", 50257);
    model.context = config.extent("n_positions", 1024);
    model.layers = config.extent("n_layer", 12);
    model.heads = config.extent("n_head", 12);
    model.channels = config.extent("n_embd", 768);
    const std::int64_t usual = 4 * model.channels;
    model.mlp_channels = config.extent("n_inner", usual, /*if_null=*/usual);
    model.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
    constexpr const char* kActivation = "activation_function";
    const std::string gelu = config.has(kActivation) ? config.text(kActivation) : "gelu_new";
    if (gelu == "gelu" || gelu == "gelu_python") model.gelu = GeluForm::kExact;
    model.tie_embeddings = config.flag("tie_word_embeddings", true);
    return {model, config.is_one_not_zero({"resid_pdrop", "embd_pdrop", "attn_pdrop"})};
  }

  Json write(const ModelOptions& model) const override {
    const bool is_usual = model.mlp_channels == 4 * model.channels;
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"vocab_size", model.vocab_size},
            {"n_positions", model.context},
            {"n_layer", model.layers},
            {"n_head", model.heads},
            {"n_embd", model.channels},
            {"n_inner", is_usual ? Json() : Json(model.mlp_channels)},
            {"activation_function", model.gelu == GeluForm::kExact ? "gelu" : "gelu_new"},
            {"layer_norm_epsilon", model.norm_eps},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"attn_pdrop", 0.0}};
  }

  // The causal mask of each block.
  bool is_buffer(const std::string& name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }
};

}  // namespace

const FamilyTraits& gpt2() {
  static const Gpt2Traits kTraits;
  return kTraits;
}

}  // namespace ladder
