// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): pre-norm blocks with RMSNorm, rotary
// positions, grouped-query attention and a SwiGLU. There are no biases. Weights are [out, in], as in
// Hugging Face's files.
//
// Its relatives differ in attention alone: Qwen2 (arXiv 2407.10671) has biases of queries, keys and
// values, and Qwen3 (arXiv 2505.09388) a norm of each head's query and key. Mistral (arXiv
// 2310.06825) is the same up to the length of its window. In SmolLM3, some layers have no positions
// (Yang et al., arXiv 2501.18795).

#include <algorithm>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"
#include "common/model/llama_layers.hpp"

namespace ladder {
namespace {

struct Projection {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined if there is none
};

// Some heads, or all. A is as many channels as they have; of keys and values, as many heads as go
// with them.
struct LlamaAttention {
  Projection q_proj;  // [A, C]
  Projection k_proj;  // [A·K/H, C]
  Projection v_proj;  // [A·K/H, C]
  at::Tensor o_proj;  // [C, A]
  std::optional<RotaryPositions> rotary;
  std::int64_t head_channels;  // d
  Products products;
  std::optional<RmsNorm> q_norm = {}, k_norm = {};  // [d], over each head

  at::Tensor operator()(const at::Tensor& x) const {
    const auto heads = [&](const Projection& from) {  // [B, T, C] -> [B, T, H or K, d]
      return project(x, from.weight, from.bias, products)
          .view({x.size(0), x.size(1), -1, head_channels});
    };
    at::Tensor q = heads(q_proj), k = heads(k_proj);
    if (q_norm) q = (*q_norm)(q), k = (*k_norm)(k);
    if (rotary) q = (*rotary)(q), k = (*rotary)(k);
    return project(causal_attention(q, k, heads(v_proj)), o_proj, products);
  }
};

// Norms of queries and keys that the heads of all parts share. So each part has a branch of their
// weights, whose gradients are added up over parts by the tree, and among owners.
struct SharedNorms {
  RmsNorm q_norm, k_norm;

  InParts<LlamaAttention> in(InParts<LlamaAttention> attention) const {
    for (const auto& [norm, member] :
         {std::pair(q_norm, &LlamaAttention::q_norm), std::pair(k_norm, &LlamaAttention::k_norm)}) {
      const auto take = [&](int part, const at::Tensor& branch) {
        attention.own[static_cast<std::size_t>(part)].*member = norm.with({branch});
        return part;
      };
      over_parts(0, attention.parts.own, branch_to_owners(norm.weight, attention.parts), take,
                 [](int, int last) { return last; });
    }
    return attention;
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
  std::optional<SharedNorms> norms;
  InRows<RmsNorm> post_attention_layernorm;
  InParts<LlamaMlp> mlp;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const at::Tensor normed = input_layernorm(x);
    const at::Tensor y = x + (norms ? norms->in(attention)(normed) : attention(normed));
    return y + mlp(post_attention_layernorm(y));
  }
};

class Llama final : public Family {
 public:
  explicit Llama(const ModelOptions& options)
      : Family(options),
        head_channels_(options_.head_channels),
        rotary_(options.context, head_channels_, options.rope_theta,
                parse_rope_scaling(options.rope_scaling)) {
    const std::string cause =
        options.head_channels != 0
            ? concat("--head-channels ", options.head_channels)
            : concat("--channels ", options.channels, " and --heads ", options.heads);
    check_usage(head_channels_ % 2 == 0, cause, " make heads of ", head_channels_,
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
    const std::int64_t A = options_.heads * d, kv_channels = options_.kv_heads * d;
    const std::string of_layer = concat("layers.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    // Weights are [out, in]: a part has rows of what its channels come from, and columns of what
    // becomes of them.
    const auto from = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {n, C}, cut_rows(n, C, grain),
                         parts);
    };
    const auto heads_from = [&](const char* name, std::int64_t n) {
      std::vector<Projection> projections;
      for (const at::Tensor& weight : from(name, n, d)) projections.push_back({weight, {}});
      if (!traits().has_qkv_bias()) return projections;
      const auto biases =
          make.constant(layer.unit, of_layer + name + ".bias", n, cut_columns(1, n, d), parts, 0);
      for (std::size_t part = 0; part < biases.size(); ++part)
        projections[part].bias = biases[part];
      return projections;
    };
    const auto into = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {C, n}, cut_columns(C, n, grain),
                         parts, residual);
    };
    LlamaBlock block = {
        .input_layernorm = {norm(make, layer.unit, of_layer + "input_layernorm"), parts},
        .attention = {{}, {}, parts},
        .norms = {},
        .post_attention_layernorm = {},
        .mlp = {{}, {}, parts}};
    const auto q = heads_from("self_attn.q_proj", A),
               k = heads_from("self_attn.k_proj", kv_channels);
    const auto v = heads_from("self_attn.v_proj", kv_channels);
    const auto o = into("self_attn.o_proj", A, d);
    if (traits().has_qk_norm())
      block.norms = SharedNorms{norm(make, layer.unit, of_layer + "self_attn.q_norm", d),
                                norm(make, layer.unit, of_layer + "self_attn.k_norm", d)};
    block.post_attention_layernorm = {norm(make, layer.unit, of_layer + "post_attention_layernorm"),
                                      parts};
    const auto gate = from("mlp.gate_proj", M, 1), up = from("mlp.up_proj", M, 1);
    const auto down = into("mlp.down_proj", M, 1);
    const std::int64_t interval = options_.no_rope_interval;
    const bool has_positions = interval == 0 || (index + 1) % interval != 0;
    const auto rotary = has_positions ? std::optional(rotary_) : std::nullopt;
    for (std::size_t part = 0; part < q.size(); ++part) {
      block.attention.own.push_back(
          {q[part], k[part], v[part], o[part], rotary, d, options_.products});
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
    const std::int64_t A = query_channels_of(options_);
    const std::int64_t bytes = options_.precision.has_16_bit_params()
                                   ? 4 * (C + std::max({5 * M, 8 * C, 8 * A}))
                                   : 4 * (C + std::max({4 * M, 6 * C, 6 * A}));
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return norm(make, unit, name, options_.channels);
  }
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name,
               std::int64_t channels) const {
    return {make.constant(unit, name + ".weight", channels, 1.0), options_.norm_eps};
  }

  std::int64_t head_channels_;
  RotaryPositions rotary_;
};

class LlamaTraits : public FamilyTraits {
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

  ModelConfig read(ConfigReader& config) const override {
    // Others have the same settings and tensors, and another function.
    const std::string own = architecture();
    config.only_all("architectures", own.substr(0, own.find("For")).c_str());
    config.only_all("layer_types", "full_attention");
    config.only("hidden_act", {"silu", "swish"});
    for (const char* name : {"attention_bias", "mlp_bias", "rope_interleaved"})
      config.only(name, {false});
    config.only("use_sliding_window", {false},
                "set it to false if your texts are no longer than \"sliding_window\"");
    config.ignore({"pretraining_tp", "is_llama_config"});
    ModelOptions model = defaults();
    const std::int64_t window = read_window(config);
    model.vocab_size = config.extent("vocab_size", model.vocab_size);
    model.context = config.extent("max_position_embeddings", model.context);
    model.layers = config.extent("num_hidden_layers", model.layers);
    model.heads = config.extent("num_attention_heads", model.heads);
    model.channels = config.extent("hidden_size", model.channels);
    model.mlp_channels = config.extent("intermediate_size", model.mlp_channels);
    model.tie_embeddings = config.flag("tie_word_embeddings", model.tie_embeddings);
    model.norm_eps = config.positive("rms_norm_eps", model.norm_eps);
    const std::int64_t kv_heads = model.kv_heads != 0 ? model.kv_heads : model.heads;
    model.kv_heads = config.extent("num_key_value_heads", kv_heads, /*if_null=*/model.heads);
    check(model.heads % model.kv_heads == 0, config.path(), ": \"num_attention_heads\" ",
          model.heads, " is not a multiple of \"num_key_value_heads\" ", model.kv_heads);
    const bool has_head_dim = model.head_channels != 0 || config.has("head_dim");
    check(has_head_dim || model.channels % model.heads == 0, config.path(), ": \"hidden_size\" ",
          model.channels, " is not a multiple of \"num_attention_heads\" ", model.heads,
          ", and there is no \"head_dim\"");
    const std::int64_t equal_share = std::max<std::int64_t>(1, model.channels / model.heads);
    const std::int64_t head_dim = model.head_channels != 0 ? model.head_channels : equal_share;
    model.head_channels = config.extent("head_dim", head_dim, /*if_null=*/equal_share);
    const ConfigReader::Rope rope = config.rope(model.context, model.rope_theta);
    model.rope_theta = rope.theta;
    model.rope_scaling = to_text(rope.scaling);
    model.no_rope_interval = read_no_rope_interval(config, model.layers);
    return {model, config.is_one_not_zero({"attention_dropout"}), window};
  }

  Json write(const ModelOptions& model) const override {
    Json scaling = scaling_json(parse_rope_scaling(model.rope_scaling));
    Json json = {{"architectures", {architecture()}},
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
                 {"rope_scaling", scaling}};
    if (scaling.is_null()) scaling = {{"rope_type", "default"}};
    scaling["rope_theta"] = model.rope_theta;
    json["rope_parameters"] = scaling;
    if (defaults().head_channels != 0 || query_channels_of(model) != model.channels)
      json["head_dim"] = head_channels_of(model);
    json["attention_dropout"] = 0.0;
    json.update(other_settings(model));
    return json;
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

 protected:
  virtual const char* architecture() const { return "LlamaForCausalLM"; }
  // The shape that transformers' class has by default; 0: one that follows from others.
  virtual ModelOptions defaults() const {
    return {.vocab_size = 32000,
            .context = 2048,
            .layers = 32,
            .heads = 32,
            .channels = 4096,
            .mlp_channels = 11008,
            .tie_embeddings = false,
            .norm_eps = 1e-6};
  }
  // Settings of windows, outside of which no position is attended to; and ModelConfig::window.
  virtual std::int64_t read_window(ConfigReader& config) const {
    config.only("sliding_window", {nullptr});
    return 0;
  }
  // And of layers without positions.
  virtual std::int64_t read_no_rope_interval(ConfigReader& /*config*/,
                                             std::int64_t /*layers*/) const {
    return 0;
  }
  virtual Json other_settings(const ModelOptions& /*model*/) const {
    return {{"attention_bias", false}, {"mlp_bias", false}};
  }

 private:
  // Null for none.
  static Json scaling_json(const RopeScaling& scaling) {
    switch (scaling.kind) {
      case RopeScaling::Kind::kNone:
        return nullptr;
      case RopeScaling::Kind::kLinear:
        return {{"rope_type", "linear"}, {"factor", scaling.factor}};
      case RopeScaling::Kind::kLlama3:
        return {{"rope_type", "llama3"},
                {"factor", scaling.factor},
                {"low_freq_factor", scaling.low_turns},
                {"high_freq_factor", scaling.high_turns},
                {"original_max_position_embeddings", scaling.original_context}};
    }
    throw CheckError("rope_scaling: no such kind");
  }
};

class Qwen2Traits : public LlamaTraits {
 public:
  const char* name() const override { return "qwen2"; }
  bool has_qkv_bias() const override { return true; }

  // Qwen2.5: arXiv 2412.15115, and the model's config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    return {{"qwen2.5-0.5b",
             {.vocab_size = 151936,
              .layers = 24,
              .heads = 14,
              .kv_heads = 2,
              .head_channels = 64,
              .channels = 896,
              .mlp_channels = 4864,
              .rope_theta = 1e6,
              .norm_eps = 1e-6}}};
  }

 protected:
  const char* architecture() const override { return "Qwen2ForCausalLM"; }
  ModelOptions defaults() const override {
    return {.vocab_size = 151936,
            .context = 32768,
            .layers = 32,
            .heads = 32,
            .kv_heads = 32,
            .channels = 4096,
            .mlp_channels = 22016,
            .tie_embeddings = false,
            .norm_eps = 1e-6};
  }
  std::int64_t read_window(ConfigReader& config) const override {
    config.ignore({"sliding_window", "max_window_layers"});  // in use only if layer_types says so
    return 0;
  }
  Json other_settings(const ModelOptions& /*model*/) const override {
    return {{"use_sliding_window", false}};
  }
};

class Qwen3Traits final : public Qwen2Traits {
 public:
  const char* name() const override { return "qwen3"; }
  bool has_qkv_bias() const override { return false; }
  bool has_qk_norm() const override { return true; }

  // Qwen3: arXiv 2505.09388, and the model's config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    return {{"qwen3-0.6b",
             {.vocab_size = 151936,
              .layers = 28,
              .heads = 16,
              .kv_heads = 8,
              .head_channels = 128,
              .channels = 1024,
              .mlp_channels = 3072,
              .rope_theta = 1e6,
              .norm_eps = 1e-6}}};
  }

 protected:
  const char* architecture() const override { return "Qwen3ForCausalLM"; }
  ModelOptions defaults() const override {
    ModelOptions model = Qwen2Traits::defaults();
    model.head_channels = 128;
    return model;
  }
  Json other_settings(const ModelOptions& /*model*/) const override {
    return {{"attention_bias", false}, {"use_sliding_window", false}};
  }
};

class MistralTraits final : public LlamaTraits {
 public:
  const char* name() const override { return "mistral"; }

  // Mistral 7B v0.3, the first without a window: arXiv 2310.06825, and the model's config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    return {{"mistral-7b",
             {.vocab_size = 32768,
              .layers = 32,
              .heads = 32,
              .kv_heads = 8,
              .channels = 4096,
              .mlp_channels = 14336,
              .tie_embeddings = false,
              .rope_theta = 1e6}}};
  }

 protected:
  const char* architecture() const override { return "MistralForCausalLM"; }
  ModelOptions defaults() const override {
    ModelOptions model = LlamaTraits::defaults();
    model.context = 131072;
    model.kv_heads = 8;
    model.mlp_channels = 14336;
    return model;
  }
  std::int64_t read_window(ConfigReader& config) const override {
    return config.extent("sliding_window", 4096, /*if_null=*/0);
  }
  Json other_settings(const ModelOptions& /*model*/) const override {
    return {{"sliding_window", nullptr}};
  }
};

class SmolLm3Traits final : public LlamaTraits {
 public:
  const char* name() const override { return "smollm3"; }
  std::int64_t no_rope_interval() const override { return 4; }

  // The model's config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    return {{"smollm3-3b",
             {.vocab_size = 128256,
              .layers = 36,
              .heads = 16,
              .kv_heads = 4,
              .channels = 2048,
              .mlp_channels = 11008,
              .rope_theta = 5e6,
              .no_rope_interval = 4,
              .norm_eps = 1e-6}}};
  }

 protected:
  const char* architecture() const override { return "SmolLM3ForCausalLM"; }
  ModelOptions defaults() const override {
    ModelOptions model = models()[0].second;
    model.context = 32768;
    model.rope_theta = 2e6;
    return model;
  }
  std::int64_t read_window(ConfigReader& config) const override {
    config.ignore({"sliding_window", "max_window_layers"});
    return 0;
  }
  // transformers makes a list that is missing by the interval, which it does not read otherwise.
  std::int64_t read_no_rope_interval(ConfigReader& config, std::int64_t layers) const override {
    constexpr std::int64_t kMostLayers = 1 << 16;
    check(layers <= kMostLayers, config.path(), ": \"num_hidden_layers\" is ", layers,
          ", it must be at most ", kMostLayers);
    config.ignore({"no_rope_layer_interval"});
    if (const auto of_list = config.interval_of_zeros("no_rope_layers", layers)) return *of_list;
    const std::int64_t interval = config.extent("no_rope_layer_interval", no_rope_interval());
    return interval <= layers ? interval : 0;
  }
  Json other_settings(const ModelOptions& model) const override {
    const std::int64_t interval =
        model.no_rope_interval != 0 ? model.no_rope_interval : model.layers + 1;
    Json layers = Json::array();
    for (std::int64_t i = 1; i <= model.layers; ++i) layers.push_back(i % interval == 0 ? 0 : 1);
    return {{"attention_bias", false},
            {"mlp_bias", false},
            {"use_sliding_window", false},
            {"no_rope_layer_interval", interval},
            {"no_rope_layers", layers}};
  }
};

}  // namespace

const FamilyTraits& llama() {
  static const LlamaTraits kTraits;
  return kTraits;
}

const FamilyTraits& qwen2() {
  static const Qwen2Traits kTraits;
  return kTraits;
}

const FamilyTraits& qwen3() {
  static const Qwen3Traits kTraits;
  return kTraits;
}

const FamilyTraits& mistral() {
  static const MistralTraits kTraits;
  return kTraits;
}

const FamilyTraits& smollm3() {
  static const SmolLm3Traits kTraits;
  return kTraits;
}

}  // namespace ladder
