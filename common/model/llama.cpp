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

struct LlamaBlock {
  RmsNorm input_layernorm;
  at::Tensor q_proj;  // [C, C]
  at::Tensor k_proj;  // [K·d, C]
  at::Tensor v_proj;  // [K·d, C]
  at::Tensor o_proj;  // [C, C]
  RmsNorm post_attention_layernorm;
  at::Tensor gate_proj;  // [M, C]
  at::Tensor up_proj;    // [M, C]
  at::Tensor down_proj;  // [C, M]
  RotaryPositions rotary;
  std::int64_t head_channels;  // d
  Products products;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const at::Tensor y = x + attention(input_layernorm(x));
    return y + mlp(post_attention_layernorm(y));
  }

  at::Tensor attention(const at::Tensor& x) const {
    const auto heads = [&](const at::Tensor& weight) {  // [B, T, C] -> [B, T, H or K, d]
      return project(x, weight, products).view({x.size(0), x.size(1), -1, head_channels});
    };
    const at::Tensor q = rotary(heads(q_proj)), k = rotary(heads(k_proj));
    return project(causal_attention(q, k, heads(v_proj)), o_proj, products);
  }

  at::Tensor mlp(const at::Tensor& x) const {
    const at::Tensor gate = project(x, gate_proj, products);
    return project(swiglu(gate, project(x, up_proj, products)), down_proj, products);
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

  Layer embedding(const ParameterMaker& make) const override {
    Layer layer;
    const at::Tensor weight = make.normal(layer.unit, traits().embedding_name(),
                                          {options_.vocab_size, options_.channels});
    layer.forward = [weight](const at::Tensor& tokens) {
      return look_up(weight, to_device(tokens, weight.device()));
    };
    return layer;
  }

  Layer block(const ParameterMaker& make, std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t kv_channels = options_.kv_heads * head_channels_;
    const std::string of_layer = concat("layers.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in, double std) {
      return make.normal(layer.unit, of_layer + name + ".weight", {out, in}, std);
    };
    layer.forward = LlamaBlock{
        .input_layernorm = norm(make, layer.unit, of_layer + "input_layernorm"),
        .q_proj = matrix("self_attn.q_proj", C, C, kInitStd),
        .k_proj = matrix("self_attn.k_proj", kv_channels, C, kInitStd),
        .v_proj = matrix("self_attn.v_proj", kv_channels, C, kInitStd),
        .o_proj = matrix("self_attn.o_proj", C, C, residual),
        .post_attention_layernorm = norm(make, layer.unit, of_layer + "post_attention_layernorm"),
        .gate_proj = matrix("mlp.gate_proj", M, C, kInitStd),
        .up_proj = matrix("mlp.up_proj", M, C, kInitStd),
        .down_proj = matrix("mlp.down_proj", C, M, residual),
        .rotary = rotary_,
        .head_channels = head_channels_,
        .products = options_.products};
    return layer;
  }

  Layer final_norm(const ParameterMaker& make) const override {
    Layer layer;
    layer.forward = norm(make, layer.unit, "norm");
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
