// What is known of Llama and its relatives, which differ in a few things: Qwen2 (arXiv 2407.10671)
// has biases of queries, keys and values, and Qwen3 (arXiv 2505.09388) a norm of each head's query
// and key. Mistral (arXiv 2310.06825) is Llama, in texts that are no longer than its window. In
// SmolLM3, some layers have no positions (arXiv 2501.18795). OLMo 2 (arXiv 2501.00656) has norms
// after attention and MLP instead of before, one of the queries of all heads, and one of their keys.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"
#include "common/model/rope_scaling.hpp"

namespace ladder {

std::unique_ptr<Family> make_llama(const ModelOptions& options);  // in llama.cpp

namespace {

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
    return make_llama(options);
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
    scaling["rope_type"] = scaling.is_null() ? "default" : scaling.value("rope_type", "linear");
    scaling.erase("type");
    scaling["rope_theta"] = model.rope_theta;
    json["rope_parameters"] = scaling;
    if (defaults().head_channels != 0 || query_channels_of(model) != model.channels)
      json["head_dim"] = head_channels_of(model);
    json["attention_dropout"] = 0.0;
    json.update(other_settings(model));
    return json;
  }

  bool is_buffer(const std::string& name) const override {
    return name.find("rotary_emb.") != std::string::npos;
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
        return {{"type", "linear"}, {"factor", scaling.factor}};
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
  QkNorm qk_norm() const override { return QkNorm::kOfEachHead; }

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

  // Mistral 7B v0.3, which has no window: arXiv 2310.06825, and the model's config.json.
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

class Olmo2Traits final : public LlamaTraits {
 public:
  const char* name() const override { return "olmo2"; }
  QkNorm qk_norm() const override { return QkNorm::kOfAllHeads; }
  bool has_norms_after() const override { return true; }

  // OLMo 2 1B: arXiv 2501.00656, and the model's config.json.
  std::vector<std::pair<std::string, ModelOptions>> models() const override {
    return {{"olmo2-1b",
             {.vocab_size = 100352,
              .layers = 16,
              .heads = 16,
              .kv_heads = 16,
              .channels = 2048,
              .mlp_channels = 8192,
              .tie_embeddings = false,
              .rope_theta = 5e5,
              .norm_eps = 1e-6}}};
  }

 protected:
  const char* architecture() const override { return "Olmo2ForCausalLM"; }
  ModelOptions defaults() const override {
    ModelOptions model = LlamaTraits::defaults();
    model.vocab_size = 50304;
    model.norm_eps = 1e-5;
    return model;
  }
  Json other_settings(const ModelOptions& /*model*/) const override {
    return {{"attention_bias", false}};
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

const FamilyTraits& olmo2() {
  static const Olmo2Traits kTraits;
  return kTraits;
}

}  // namespace ladder
