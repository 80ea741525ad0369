#include "common/train/pretrained/model_config.hpp"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/core/check.hpp"
#include "common/train/options/option_values.hpp"

namespace ladder {
namespace {

constexpr Range<std::int64_t> kExtent = {1, std::numeric_limits<std::int32_t>::max()};

class ConfigReader {
 public:
  ConfigReader(const std::string& text, const std::string& path)
      : path_(path), settings_(set_in(text, path)), reader_(settings_, path, "") {}

  bool has(const char* name) const { return settings_.contains(name); }

  std::int64_t extent(const char* name) const {
    const std::int64_t value = count_in(settings_, name, path_);
    check(kExtent.contains(value), path_, ": \"", name, "\" is ", value, ", it must be from ",
          kExtent.least, " to ", kExtent.most);
    return value;
  }
  std::int64_t extent(const char* name, std::int64_t otherwise) const {
    return has(name) ? extent(name) : otherwise;
  }
  double positive(const char* name, double otherwise) const {
    return has(name) ? positive_in(settings_, name) : otherwise;
  }
  bool flag(const char* name, bool otherwise) const { return reader_.flag(name, otherwise); }
  bool is_zero(const char* name) const { return settings_.at(name) == 0; }
  std::string text(const char* name) const { return reader_.text(name); }
  // A setting that must have one of these values, if it is there.
  void only(const char* name, std::initializer_list<SortedJson> values) const {
    if (has(name)) reader_.only(name, values);
  }

  // Both spellings: "rope_theta" with "rope_scaling", and "rope_parameters" with both in it.
  double rope_theta() const {
    double theta = positive("rope_theta", ModelOptions().rope_theta);
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      if (!has(name)) continue;
      const SortedJson& rope = settings_.at(name);
      const JsonSettings settings = reader_.object(name);
      for (const char* type : {"rope_type", "type"}) settings.only(type, {nullptr, "default"});
      settings.only("partial_rotary_factor", {nullptr, 1});
      if (!rope.contains("rope_theta") || rope["rope_theta"].is_null()) continue;
      const double nested = positive_in(rope, "rope_theta");
      check(!has("rope_theta") || nested == theta, path_, ": \"rope_theta\" is ", theta, ", but ",
            nested, " in \"", name, "\"");
      theta = nested;
    }
    return theta;
  }

  const std::string& path() const { return path_; }

 private:
  // Leaves out members that are null, Python's None: they are not set.
  static SortedJson set_in(const std::string& text, const std::string& path) {
    const SortedJson all = parse_sorted_json(text, path);
    check(all.is_object(), path, ": is not an object of settings");
    SortedJson set = SortedJson::object();
    for (const auto& [name, value] : all.items())
      if (!value.is_null()) set[name] = value;
    return set;
  }
  double positive_in(const SortedJson& object, const char* name) const {
    const SortedJson& value = object.at(name);
    const bool is_in_range = value.is_number() && kPositive.contains(value.get<double>());
    check(is_in_range, path_, ": \"", name, "\" is ", excerpt(to_text(value)),
          ", it must be a number above 0 and at most ", kPositive.most);
    return value.get<double>();
  }

  const std::string& path_;
  const SortedJson settings_;
  const JsonSettings reader_;
};

ModelOptions gpt2_of(const ConfigReader& config) {
  config.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.only("scale_attn_weights", {true});
  config.only("scale_attn_by_inverse_layer_idx", {false});
  ModelOptions model;
  model.family = ModelFamily::kGpt2;
  model.vocab_size = config.extent("vocab_size");
  model.context = config.extent("n_positions");
  model.layers = config.extent("n_layer");
  model.heads = config.extent("n_head");
  model.channels = config.extent("n_embd");
  model.mlp_channels = config.extent("n_inner", 4 * model.channels);
  model.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
  model.tie_embeddings = config.flag("tie_word_embeddings", true);
  return model;
}

ModelOptions llama_of(const ConfigReader& config) {
  config.only("hidden_act", {"silu"});
  for (const char* name : {"attention_bias", "mlp_bias", "rope_interleaved"})
    config.only(name, {false});
  config.only("partial_rotary_factor", {1});
  ModelOptions model;
  model.family = ModelFamily::kLlama;
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
  check(model.heads % model.kv_heads == 0, config.path(), ": \"num_attention_heads\" ", model.heads,
        " is not a multiple of \"num_key_value_heads\" ", model.kv_heads);
  const std::int64_t head_dim = config.extent("head_dim", model.channels / model.heads);
  check(head_dim * model.heads == model.channels, config.path(), ": \"head_dim\" is ", head_dim,
        ", but in Ladder's model it is hidden_size / num_attention_heads = ", model.channels, " / ",
        model.heads);
  return model;
}

// The names under which the two families say how much dropout they were trained with.
bool has_dropout(const ConfigReader& config) {
  for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"})
    if (config.has(name) && !config.is_zero(name)) return true;
  return false;
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  const ConfigReader config(text, path);
  const std::string type = config.text("model_type");
  check(type == "gpt2" || type == "llama", path, ": \"model_type\" is \"", excerpt(type),
        "\", Ladder reads \"gpt2\" and \"llama\"");
  // What would make another function of the same weights, in both families.
  for (const char* name : {"quantization_config", "sliding_window"}) config.only(name, {nullptr});
  for (const char* name : {"use_sliding_window", "is_encoder_decoder", "add_cross_attention"})
    config.only(name, {false});
  config.only("pruned_heads", {SortedJson::object()});
  return {type == "gpt2" ? gpt2_of(config) : llama_of(config), has_dropout(config)};
}

namespace {

Json gpt2_json(const ModelOptions& model) {
  const bool is_usual = model.mlp_channels == 4 * model.channels;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.context},
          {"n_layer", model.layers},
          {"n_head", model.heads},
          {"n_embd", model.channels},
          {"n_inner", is_usual ? Json() : Json(model.mlp_channels)},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", model.norm_eps},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

Json llama_json(const ModelOptions& model) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
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

}  // namespace

Json model_config_json(const ModelOptions& model, at::ScalarType dtype) {
  Json json = model.family == ModelFamily::kGpt2 ? gpt2_json(model) : llama_json(model);
  json["tie_word_embeddings"] = model.tie_embeddings;
  json["torch_dtype"] = dtype == at::kHalf       ? "float16"
                        : dtype == at::kBFloat16 ? "bfloat16"
                                                 : "float32";
  return json;
}

}  // namespace ladder
