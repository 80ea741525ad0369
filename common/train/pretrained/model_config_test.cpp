#include "common/train/pretrained/model_config.hpp"

#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/small_pretrained.hpp"

namespace ladder {
namespace {

// SmolLM2-135M's, as it is published.
Json smollm2_config() {
  return Json::parse(R"({
    "_name_or_path": "/some/where", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu",
    "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
    "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "vocab_size": 49152})");
}

// Qwen3-0.6B's.
Json qwen3_config() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// Qwen2.5-0.5B's.
Json qwen2_config() {
  return Json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
    "use_sliding_window": false, "vocab_size": 151936})");
}

// Llama-3.2-1B's.
Json llama3_config() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
    "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true,
    "vocab_size": 128256})");
}

// Mistral-7B-v0.1's, with a window that later versions do not have.
Json mistral_config() {
  return Json::parse(R"({
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})");
}

// Mistral-7B-v0.3's.
Json mistral3_config() {
  Json config = mistral_config();
  config.update({{"vocab_size", 32768}, {"rope_theta", 1e6}, {"sliding_window", nullptr}});
  return config;
}

// SmolLM3-3B's.
Json smollm3_config() {
  return Json::parse(R"({
    "architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
    "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
    "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0,
    1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], "num_attention_heads": 16,
    "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004,
    "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
    "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.54.0.dev0", "use_cache": false, "use_sliding_window": false,
    "vocab_size": 128256})");
}

// OLMo-2-0425-1B's.
Json olmo2_config() {
  return Json::parse(R"({
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2",
    "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16,
    "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
    "tie_word_embeddings": false, "torch_dtype": "float32", "transformers_version": "4.47.0",
    "use_cache": true, "vocab_size": 100352})");
}

// GPT-2's own, from before transformers 2.
Json gpt2_config() {
  return Json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
    "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true,
    "max_length": 50}}, "vocab_size": 50257})");
}

ModelConfig parse(const Json& config) {
  return parse_model_config(to_text(config), "x/config.json");
}

Json changed(Json config, const std::string& name, const Json& value) {
  config[name] = value;
  return config;
}

template <class... Parts>
void expect_refused_text(const std::string& text, const Parts&... parts) {
  SCOPED_TRACE(text);
  expect_throws<CheckError>([&] { parse_model_config(text, "x/config.json"); },
                            {"x/config.json: ", parts...});
}

void expect_refused(const Json& config, const std::string& name, const Json& value) {
  expect_refused_text(to_text(changed(config, name, value)), "\"" + name + "\"",
                      excerpt(to_text(value)));
}

TEST(ModelConfigTest, ReadsTheShapeOfALlama) {
  const ModelConfig config = parse(smollm2_config());
  expect_same_model(config.model, {.family = ModelFamily::kLlama,
                                   .vocab_size = 49152,
                                   .context = 8192,
                                   .layers = 30,
                                   .heads = 9,
                                   .kv_heads = 3,
                                   .channels = 576,
                                   .mlp_channels = 1536,
                                   .tie_embeddings = true,
                                   .rope_theta = 100000,
                                   .norm_eps = 1e-5});
  EXPECT_FALSE(config.has_dropout);
}

// Each family's own default, which transformers' class gives as well; one is missing at a time.
TEST(ModelConfigTest, WhatIsNotSetIsAsInTransformers) {
  const auto without = [](Json config, const char* name) {
    config.erase(name);
    return parse(config).model;
  };
  using M = ModelOptions;
  using Numbers = std::vector<std::int64_t>;
  const std::vector<std::pair<const char*, std::int64_t M::*>>
      of_gpt2 = {{"vocab_size", &M::vocab_size},
                 {"n_positions", &M::context},
                 {"n_layer", &M::layers},
                 {"n_head", &M::heads},
                 {"n_embd", &M::channels}},
      of_llama = {{"vocab_size", &M::vocab_size},        {"max_position_embeddings", &M::context},
                  {"num_hidden_layers", &M::layers},     {"num_attention_heads", &M::heads},
                  {"hidden_size", &M::channels},         {"intermediate_size", &M::mlp_channels},
                  {"num_key_value_heads", &M::kv_heads}, {"head_dim", &M::head_channels}};
  for (const auto& [config, wanted] :
       {std::pair(small_gpt2_config(), Numbers{50257, 1024, 12, 12, 768}),
        {llama3_config(), {32000, 2048, 32, 32, 4096, 11008, 32, 64}},
        {qwen2_config(), {151936, 32768, 32, 32, 4096, 22016, 32, 64}},
        {qwen3_config(), {151936, 32768, 32, 32, 4096, 22016, 32, 128}},
        {mistral_config(), {32000, 131072, 32, 32, 4096, 14336, 8, 128}},
        {smollm3_config(), {128256, 32768, 36, 16, 2048, 11008, 4, 128}},
        {olmo2_config(), {50304, 2048, 32, 32, 4096, 11008, 32, 128}}}) {
    const auto& settings = config["model_type"] == "gpt2" ? of_gpt2 : of_llama;
    for (std::size_t i = 0; i < settings.size(); ++i) {
      const auto [name, member] = settings[i];
      SCOPED_TRACE(concat(config["model_type"].get<std::string>(), " ", name));
      Json fitting = config;  // to what is missing
      if (member == &M::kv_heads) fitting["num_attention_heads"] = 32;
      if (member == &M::heads) fitting.update({{"num_key_value_heads", 1}, {"head_dim", 64}});
      if (member == &M::channels) fitting["head_dim"] = 64;
      EXPECT_EQ(without(config["model_type"] == "gpt2" ? config : fitting, name).*member,
                wanted[i]);
    }
  }
  EXPECT_EQ(parse(changed(llama3_config(), "num_key_value_heads", nullptr)).model.kv_heads, 32);
  EXPECT_EQ(parse(changed(qwen3_config(), "num_key_value_heads", nullptr)).model.kv_heads, 16);
  Json no_heads = qwen3_config();  // 32, which do not divide 16
  no_heads.erase("num_key_value_heads");
  expect_refused_text(to_text(no_heads), "num_key_value_heads", "32");
  for (const Json& config : {llama3_config(), qwen2_config(), qwen3_config(), mistral_config()}) {
    EXPECT_EQ(without(config, "rms_norm_eps").norm_eps, 1e-6);
    EXPECT_EQ(without(config, "rope_theta").rope_theta, 10000);
    EXPECT_FALSE(without(config, "tie_word_embeddings").tie_embeddings);
  }
  Json smollm3 = smollm3_config();
  smollm3.erase("tie_word_embeddings");
  EXPECT_EQ(without(smollm3, "rope_theta").rope_theta, 2e6);
  EXPECT_TRUE(parse(smollm3).model.tie_embeddings);
  EXPECT_EQ(without(olmo2_config(), "rms_norm_eps").norm_eps, 1e-5);
  EXPECT_FALSE(without(olmo2_config(), "tie_word_embeddings").tie_embeddings);
  EXPECT_EQ(without(small_gpt2_config(), "layer_norm_epsilon").norm_eps, 1e-5);
  EXPECT_TRUE(parse(small_gpt2_config()).model.tie_embeddings);
  EXPECT_FALSE(
      parse(changed(small_gpt2_config(), "tie_word_embeddings", false)).model.tie_embeddings);
}

TEST(ModelConfigTest, ReadsTheConfigsOfKnownModels) {
  expect_same_model(parse(gpt2_config()).model, {.vocab_size = 50257,
                                                 .context = 1024,
                                                 .layers = 12,
                                                 .heads = 12,
                                                 .channels = 768,
                                                 .mlp_channels = 3072});
  for (const auto& [config, name, context] : {std::tuple(qwen2_config(), "qwen2.5-0.5b", 32768),
                                              {qwen3_config(), "qwen3-0.6b", 40960},
                                              {mistral3_config(), "mistral-7b", 32768},
                                              {smollm3_config(), "smollm3-3b", 65536},
                                              {olmo2_config(), "olmo2-1b", 4096}}) {
    ModelOptions wanted = *named_model(name).shape;
    wanted.context = context;
    expect_same_model(parse(config).model, wanted);
  }
  EXPECT_EQ(parse(llama3_config()).model.rope_scaling, "llama3:32:1:4:8192");
}

TEST(ModelConfigTest, ReadsTheShapeOfAGpt2) {
  const ModelConfig config = parse(changed(small_gpt2_config(), "resid_pdrop", 0.1));
  ModelOptions wanted = small_gpt2();
  wanted.mlp_channels = 16;
  expect_same_model(config.model, wanted);
  EXPECT_TRUE(config.has_dropout);
  EXPECT_EQ(parse(changed(small_gpt2_config(), "n_inner", 17)).model.mlp_channels, 17);
  EXPECT_EQ(parse(changed(small_gpt2_config(), "layer_norm_epsilon", 1e-6)).model.norm_eps, 1e-6);
}

TEST(ModelConfigTest, RotaryPositionsHaveTwoSpellings) {
  Json config = smollm2_config();
  config.erase("rope_theta");
  config.erase("rope_scaling");
  const auto theta = [&](const char* name, const Json& value) {
    return parse(changed(config, name, value)).model.rope_theta;
  };
  EXPECT_EQ(theta("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}), 5e5);
  EXPECT_EQ(theta("rope_parameters", {{"rope_theta", 7000}}), 7000);
  EXPECT_EQ(theta("rope_parameters", {{"partial_rotary_factor", 1.0}}), 10000);
  EXPECT_EQ(theta("rope_scaling", {{"type", "default"}}), 10000);
  for (const char* type : {"dynamic", "yarn", "longrope"}) {
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      for (const char* key : {"type", "rope_type"})
        expect_refused_text(to_text(changed(config, name, {{key, type}, {"factor", 2.0}})), name,
                            type);
    }
  }
  const auto scaling = [&](const char* name, const Json& value) {
    return parse(changed(config, name, value)).model.rope_scaling;
  };
  const Json llama3 = {{"factor", 8.5}, {"low_freq_factor", 1}, {"high_freq_factor", 4.0}};
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    for (const char* key : {"type", "rope_type"}) {
      EXPECT_EQ(scaling(name, {{key, "linear"}, {"factor", 2.5}}), "linear:2.5");
      EXPECT_EQ(scaling(name, changed(llama3, key, "llama3")), "llama3:8.5:1:4:8192");
    }
    const Json whole = changed(llama3, "rope_type", "llama3");
    EXPECT_EQ(scaling(name, changed(whole, "original_max_position_embeddings", 64)),
              "llama3:8.5:1:4:64");
    for (const auto& [key, value] : {std::pair("factor", Json(0)),
                                     {"factor", Json("x")},
                                     {"high_freq_factor", Json(1)},
                                     {"mrope_section", Json({8})},
                                     {"original_max_position_embeddings", Json(0.5)}})
      expect_refused_text(to_text(changed(config, name, changed(whole, key, value))), key);
    expect_refused_text(to_text(changed(config, name, {{"type", "linear"}})), "factor", "missing");
  }
  expect_refused_text(
      to_text(changed(changed(config, "rope_parameters", {{"rope_type", "default"}}),
                      "rope_scaling", {{"type", "linear"}, {"factor", 2}})),
      "rope_scaling", "rope_parameters");
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"partial_rotary_factor", 0.5}})),
                      "partial_rotary_factor");
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"rope_theta", "x"}})), "\"x\"");
  config = changed(config, "rope_theta", 10000);
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"rope_theta", 5000}})), "10000",
                      "5000");
}

TEST(ModelConfigTest, AWindowIsToldAndNotInTheShape) {
  EXPECT_EQ(parse(mistral_config()).model.context, 32768);
  EXPECT_EQ(parse(mistral_config()).window, 4096);
  EXPECT_EQ(parse(mistral3_config()).window, 0);
  EXPECT_EQ(parse(changed(mistral_config(), "sliding_window", 300)).window, 300);
  Json missing = mistral_config();
  missing.erase("sliding_window");
  EXPECT_EQ(parse(missing).window, 4096);
  expect_refused(mistral_config(), "sliding_window", 0);
  EXPECT_TRUE(model_config_json(parse(mistral_config()).model, at::kFloat)
                  .at("sliding_window")
                  .is_null());  // else transformers would take 4096
}

// The list says which layers have positions, and the interval makes one that is missing.
TEST(ModelConfigTest, LayersWithoutPositionsAreEveryNth) {
  Json config = changed(smollm3_config(), "num_hidden_layers", 5);
  const auto interval = [&](const Json& layers, const Json& every) {
    return parse(
               changed(changed(config, "no_rope_layers", layers), "no_rope_layer_interval", every))
        .model.no_rope_interval;
  };
  EXPECT_EQ(interval({1, 1, 1, 0, 1}, 2), 4);
  EXPECT_EQ(interval({1, 0, 1, 0, 1, 1, 1}, 4), 2);  // those of further layers are not read
  EXPECT_EQ(interval({0, 0, 0, 0, 0}, 4), 1);
  EXPECT_EQ(interval({1, 1, 1, 1, 1, 0}, 4), 0);
  EXPECT_EQ(interval(nullptr, 2), 2);
  EXPECT_EQ(interval(nullptr, 6), 0);
  for (const Json& layers : {Json({1, 1, 1, 0}), Json({1, 1, 0, 0, 1}), Json({1, 0, 1, 1, 1}),
                             Json({1, 0, 1, 0, 2}), Json({0, 1, 1, 1, 1}), Json(4), Json({"1"})})
    expect_refused(config, "no_rope_layers", layers);
  config.erase("no_rope_layers");
  expect_refused(config, "no_rope_layer_interval", 0);
  expect_refused(config, "num_hidden_layers", 1 << 20);
  config.erase("no_rope_layer_interval");
  EXPECT_EQ(parse(config).model.no_rope_interval, 4);
  EXPECT_EQ(model_config_json(parse(config).model, at::kFloat)["no_rope_layers"],
            Json({1, 1, 1, 0, 1}));
}

TEST(ModelConfigTest, GeluIsByTanhOrExact) {
  const auto gelu = [](const Json& config) { return parse(config).model.gelu; };
  EXPECT_EQ(gelu(small_gpt2_config()), GeluForm::kTanh);
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"})
    EXPECT_EQ(gelu(changed(small_gpt2_config(), "activation_function", name)), GeluForm::kTanh);
  const Json exact = changed(small_gpt2_config(), "activation_function", "gelu");
  EXPECT_EQ(gelu(exact), GeluForm::kExact);
  EXPECT_EQ(model_config_json(parse(exact).model, at::kFloat)["activation_function"], "gelu");
}

// What would make another function of the same weights.
TEST(ModelConfigTest, WhatOurModelsDoNotHaveIsRefusedByNameAndValue) {
  const std::vector<std::pair<std::string, Json>> in_gpt2 = {
      {"activation_function", "relu"},
      {"scale_attn_weights", false},
      {"scale_attn_by_inverse_layer_idx", true},
      {"add_cross_attention", true},
      {"pruned_heads", {{"0", {1}}}}};
  for (const auto& [name, value] : in_gpt2) expect_refused(small_gpt2_config(), name, value);
  const std::vector<std::pair<std::string, Json>> in_llama = {
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"head_dim", 0},
      {"partial_rotary_factor", 0.5},
      {"rope_interleaved", true},
      {"sliding_window", 4096},
      {"use_sliding_window", true},
      {"num_key_value_heads", 2},
      {"quantization_config", {{"bits", 4}}},
      {"model_type", "gemma2"},
      {"architectures", {"HeliumForCausalLM"}},  // the same settings, other rotations
      {"no_rope_layers", {1, 1, 1, 0}},          // SmolLM3's, relabelled
      {"no_rope_layer_interval", 4},
      {"embedding_multiplier", 12.0},  // Granite's
      {"logits_scaling", 8.0},
      {"final_logit_softcapping", 30.0},
      {"auto_map", {{"AutoModelForCausalLM", "own.Model"}}}};
  for (const auto& [name, value] : in_llama) expect_refused(smollm2_config(), name, value);
  const std::vector<std::pair<std::string, Json>> in_qwen = {
      {"use_sliding_window", true},
      {"attention_bias", true},
      {"layer_types", {"full_attention", "sliding_attention"}},
      {"num_experts", 128},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}};
  for (const auto& [name, value] : in_qwen) {
    expect_refused_text(to_text(changed(qwen3_config(), name, value)), name);
    if (name != "attention_bias" && name != "num_experts")
      expect_refused_text(to_text(changed(qwen2_config(), name, value)), name);
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"reorder_and_upcast_attn", true},
                                                 {"quantization_config", nullptr},
                                                 {"anything", nullptr},
                                                 {"anything", false},
                                                 {"anything", Json::array()},
                                                 {"_anything", 7},
                                                 {"temperature", 0.5}})
    EXPECT_NO_THROW(parse(changed(small_gpt2_config(), name, value)));
  expect_refused(small_gpt2_config(), "anything", {{"else", 1}});
  EXPECT_NO_THROW(parse(changed(smollm2_config(), "hidden_act", "swish")));
  EXPECT_NO_THROW(parse(changed(qwen2_config(), "layer_types", {"full_attention"})));
}

// In one line: the file, the setting, its value, and a way out.
TEST(ModelConfigTest, ARefusalSaysWhatToDo) {
  struct Case {
    const char* name;
    Json value;
    const char* way_out;
  };
  for (const auto& [name, value, way_out] :
       {Case{"model_type", "gemma2", "or train this one with transformers"},
        {"mlp_bias", true, "or train this one with transformers"},
        {"hidden_act", "gelu", "or train this one with transformers"},
        {"quantization_config", {{"bits", 4}}, "take the model as it was before"},
        {"logits_scaling", 8.0, "if the weights were trained without it, delete it"}})
    expect_refused_text(to_text(changed(smollm2_config(), name, value)), concat('"', name, '"'),
                        to_text(value), way_out);
}

TEST(ModelConfigTest, NumbersThatAreNoneAreRefusedByNameAndValue) {
  for (const char* name : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const Json& value : {Json(0), Json(-1), Json(2.5), Json(2.0), Json(1e300), Json("2"),
                              Json(std::int64_t{1} << 62), Json(~std::uint64_t{0}),
                              Json(1'000'000'000'000), Json::array({2}), Json(true)})
      expect_refused(small_gpt2_config(), name, value);
    expect_refused(small_gpt2_config(), name, nullptr);
  }
  for (const char* name : {"rms_norm_eps", "rope_theta"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1e300), Json("1e-5"), Json::array()})
      expect_refused(smollm2_config(), name, value);
  }
  expect_refused(smollm2_config(), "tie_word_embeddings", "yes");
  expect_refused_text(to_text(changed(smollm2_config(), "rope_scaling", 2)), "rope_scaling is 2");
  expect_refused(smollm2_config(), "model_type", 7);
}

TEST(ModelConfigTest, TextThatIsNoConfigIsRefused) {
  const std::string good = to_text(small_gpt2_config());
  for (std::size_t size = 0; size < good.size(); ++size) expect_refused_text(good.substr(0, size));
  const std::string head = R"({"model_type": "gpt2", "n_layer": )";
  expect_refused_text(head + "NaN}", "not valid JSON");
  expect_refused_text(head + "1e999}");
  expect_refused_text(head + "1, \"n_layer\": 2}", "n_layer", "twice");
  expect_refused_text(head + std::string(100'000, '[') + std::string(100'000, ']') + "}", "nests");
  for (const char* text : {"[]", "7", "null", "\"gpt2\"", "{}", "{\"model_type\": null}"})
    expect_refused_text(text);
}

// Versions of transformers before 5 read only the first.
TEST(ModelConfigTest, RopeThetaIsWrittenForOldAndNewReaders) {
  const Json config = model_config_json(parse(smollm2_config()).model, at::kFloat);
  EXPECT_EQ(config["rope_theta"], 100000);
  EXPECT_EQ(config["rope_parameters"]["rope_theta"], 100000);
}

TEST(ModelConfigTest, WhatIsWrittenIsReadAgain) {
  Json slower = qwen2_config();
  slower["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0 / 3}};
  for (const Json& config :
       {smollm2_config(), small_gpt2_config(), gpt2_config(), qwen2_config(), qwen3_config(),
        llama3_config(), slower, mistral_config(), smollm3_config(), olmo2_config(),
        changed(changed(smollm3_config(), "no_rope_layers", nullptr), "no_rope_layer_interval",
                50)}) {
    const ModelOptions model = parse(config).model;
    expect_same_model(parse(model_config_json(model, at::kBFloat16)).model, model);
  }
}

}  // namespace
}  // namespace ladder
