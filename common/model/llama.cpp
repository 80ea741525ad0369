// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): pre-norm blocks with RMSNorm, rotary
// positions, grouped-query attention and a SwiGLU. There are no biases. Weights are [out, in], as in
// Hugging Face's files.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"
#include "common/model/llama_layers.hpp"

namespace ladder {
namespace {

// Some heads, or all. A is as many channels as they have; of keys and values, as many heads as go
// with them.
struct LlamaAttention {
  at::Tensor q_proj;  // [A, C]
  at::Tensor k_proj;  // [A·K/H, C]
  at::Tensor v_proj;  // [A·K/H, C]
  at::Tensor o_proj;  // [C, A]
  RotaryPositions rotary;
  std::int64_t head_channels;  // d
  Products products;

  at::Tensor operator()(const at::Tensor& x) const {
    const auto heads = [&](const at::Tensor& weight) {  // [B, T, C] -> [B, T, H or K, d]
      return project(x, weight, products).view({x.size(0), x.size(1), -1, head_channels});
    };
    const at::Tensor q = rotary(heads(q_proj)), k = rotary(heads(k_proj));
    return project(causal_attention(q, k, heads(v_proj)), o_proj, products);
  }
};

struct LlamaMlp {
  at::Tensor gate_proj;  // [M, C], or some of these channels
  at::Tensor up_proj;    // [M, C]
  at::Tensor down_proj;  // [C, M]
  Products products;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor gate = project(x, gate_proj, products);
    return project(swiglu(gate, project(x, up_proj, products)), down_proj, products);
  }
};

struct LlamaBlock {
  InRows<RmsNorm> input_layernorm;
  InParts<LlamaAttention> attention;
  InRows<RmsNorm> post_attention_layernorm;
  InParts<LlamaMlp> mlp;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const at::Tensor y = x + attention(input_layernorm(x));
    return y + mlp(post_attention_layernorm(y));
  }
};

class Llama final : public Family {
 public:
  explicit Llama(const ModelOptions& options)
      : Family(options),
        head_channels_(options.channels / options.heads),
        rotary_(options.context, head_channels_, options.rope_theta) {
    check_usage(head_channels_ % 2 == 0, "--channels ", options.channels, " and --heads ",
                options.heads, " make heads of ", head_channels_,
                " channels; rotary positions turn pairs of them, so their number must be even");
  }

  Embedding embedding(const ParameterMaker& make, const Parts& parts) const override {
    Layer layer;
    const TokenEmbedding tokens = token_embedding(make, layer.unit, parts);
    layer.forward = [tokens](const at::Tensor& ids) {
      return tokens(to_device(ids, tokens.weights[0].device()));
    };
    return {layer, tokens.weights};
  }

  Layer block(const ParameterMaker& make, std::int64_t index, const Parts& parts) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels, d = head_channels_;
    const std::int64_t kv_channels = options_.kv_heads * d;
    const std::string of_layer = concat("layers.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    // Weights are [out, in]: a part has rows of what its channels come from, and columns of what
    // becomes of them.
    const auto from = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {n, C}, cut_rows(n, C, grain),
                         parts);
    };
    const auto into = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {C, n}, cut_columns(C, n, grain),
                         parts, residual);
    };
    LlamaBlock block = {
        .input_layernorm = {norm(make, layer.unit, of_layer + "input_layernorm"), parts},
        .attention = {{}, {}, parts},
        .post_attention_layernorm = {},
        .mlp = {{}, {}, parts}};
    const auto q = from("self_attn.q_proj", C, d), k = from("self_attn.k_proj", kv_channels, d);
    const auto v = from("self_attn.v_proj", kv_channels, d), o = into("self_attn.o_proj", C, d);
    block.post_attention_layernorm = {norm(make, layer.unit, of_layer + "post_attention_layernorm"),
                                      parts};
    const auto gate = from("mlp.gate_proj", M, 1), up = from("mlp.up_proj", M, 1);
    const auto down = into("mlp.down_proj", M, 1);
    for (std::size_t part = 0; part < q.size(); ++part) {
      block.attention.own.push_back(
          {q[part], k[part], v[part], o[part], rotary_, d, options_.products});
      block.mlp.own.push_back({gate[part], up[part], down[part], options_.products});
    }
    layer.forward = block;
    return layer;
  }

  Layer final_norm(const ParameterMaker& make, const Parts& parts) const override {
    Layer layer;
    layer.forward = InRows<RmsNorm>{norm(make, layer.unit, "norm"), parts};
    return layer;
  }

  // The gradient of the residual stream; four of the SwiGLU, which has a fifth number if 16 bits are
  // widened for it, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t bytes = options_.precision.has_16_bit_params()
                                   ? 4 * (C + std::max(5 * M, 8 * C))
                                   : 4 * (C + std::max(4 * M, 6 * C));
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return {make.constant(unit, name + ".weight", options_.channels, 1.0), options_.norm_eps};
  }

  std::int64_t head_channels_;
  RotaryPositions rotary_;
};

class LlamaTraits final : public FamilyTraits {
 public:
  const char* name() const override { return "llama"; }
  const char* prefix() const override { return "model."; }
  const char* embedding_name() const override { return "embed_tokens.weight"; }
  const char* positions_name() const override { return ""; }
  bool has_kv_heads() const override { return true; }
  bool has_joint_qkv() const override { return false; }
  std::int64_t mlp_matrices() const override { return 3; }
  std::int64_t norm_statistics() const override { return 1; }

  std::unique_ptr<Family> make(const ModelOptions& options) const override {
    return std::make_unique<Llama>(options);
  }

  ModelConfig read(const ConfigReader& config) const override {
    config.only("hidden_act", {"silu"});
    for (const char* name : {"attention_bias", "mlp_bias", "rope_interleaved"})
      config.only(name, {false});
    config.only("partial_rotary_factor", {1});
    ModelOptions model;
    model.vocab_size = config.extent("vocab_size");
    model.context = config.extent("max_position_embeddings");
    model.layers = config.extent("num_hidden_layers");
    model.heads = config.extent("num_attention_heads");
    model.kv_heads = config.extent("num_key_value_heads", model.heads);
    model.channels = config.extent("hidden_size");
    model.mlp_channels = config.extent("intermediate_size");
    model.tie_embeddings = config.flag("tie_word_embeddings", false);
    model.norm_eps = config.positive("rms_norm_eps", 1e-6);
    model.rope_theta = config.rope_theta();
    check(model.heads % model.kv_heads == 0, config.path(), ": \"num_attention_heads\" ",
          model.heads, " is not a multiple of \"num_key_value_heads\" ", model.kv_heads);
    const std::int64_t head_dim = config.extent("head_dim", model.channels / model.heads);
    check(head_dim * model.heads == model.channels, config.path(), ": \"head_dim\" is ", head_dim,
          ", but in Ladder's model it is hidden_size / num_attention_heads = ", model.channels,
          " / ", model.heads);
    return {model, config.is_one_not_zero({"attention_dropout"})};
  }

  Json write(const ModelOptions& model) const override {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"vocab_size", model.vocab_size},
            {"max_position_embeddings", model.context},
            {"num_hidden_layers", model.layers},
            {"num_attention_heads", model.heads},
            {"num_key_value_heads", model.kv_heads},
            {"hidden_size", model.channels},
            {"intermediate_size", model.mlp_channels},
            {"hidden_act", "silu"},
            {"rms_norm_eps", model.norm_eps},
            {"rope_theta", model.rope_theta},  // for readers from before transformers 5
            {"rope_scaling", nullptr},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", model.rope_theta}}},
            {"attention_bias", false},
            {"mlp_bias", false},
            {"attention_dropout", 0.0}};
  }

  bool is_buffer(const std::string& name) const override {
    return name.ends_with(".rotary_emb.inv_freq");
  }

  // SmolLM2: Allal et al., arXiv 2502.02737, and the models' config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    const auto smollm2 = [](std::int64_t layers, std::int64_t channels, std::int64_t mlp_channels,
                            std::int64_t heads, std::int64_t kv_heads) -> ModelOptions {
      return {.vocab_size = 49152,
              .layers = layers,
              .heads = heads,
              .kv_heads = kv_heads,
              .channels = channels,
              .mlp_channels = mlp_channels,
              .tie_embeddings = true,
              .rope_theta = 100000,
              .norm_eps = 1e-5};
    };
    return {{"smollm2-135m", smollm2(30, 576, 1536, 9, 3)},
            {"smollm2-360m", smollm2(32, 960, 2560, 15, 5)}};
  }
};

}  // namespace

const FamilyTraits& llama() {
  static const LlamaTraits kTraits;
  return kTraits;
}

}  // namespace ladder
