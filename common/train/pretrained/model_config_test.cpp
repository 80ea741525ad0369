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

TEST(ModelConfigTest, WhatIsNotSetIsAsInTransformers) {
  Json config = smollm2_config();
  for (const char* name : {"num_key_value_heads", "rms_norm_eps", "rope_theta",
                           "tie_word_embeddings", "attention_dropout"})
    config.erase(name);
  const ModelOptions llama = parse(config).model;
  EXPECT_EQ(llama.kv_heads, 9);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tie_embeddings);
  EXPECT_TRUE(parse(small_gpt2_config()).model.tie_embeddings);
  EXPECT_FALSE(
      parse(changed(small_gpt2_config(), "tie_word_embeddings", false)).model.tie_embeddings);
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
  for (const char* type : {"linear", "dynamic", "yarn", "longrope", "llama3"}) {
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      for (const char* key : {"type", "rope_type"})
        expect_refused_text(to_text(changed(config, name, {{key, type}, {"factor", 2.0}})), name,
                            type);
    }
  }
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"partial_rotary_factor", 0.5}})),
                      "partial_rotary_factor");
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"rope_theta", "x"}})), "\"x\"");
  config = changed(config, "rope_theta", 10000);
  expect_refused_text(to_text(changed(config, "rope_parameters", {{"rope_theta", 5000}})), "10000",
                      "5000");
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
      {"head_dim", 128},
      {"partial_rotary_factor", 0.5},
      {"rope_interleaved", true},
      {"sliding_window", 4096},
      {"use_sliding_window", true},
      {"num_key_value_heads", 2},
      {"quantization_config", {{"bits", 4}}},
      {"model_type", "mistral"}};
  for (const auto& [name, value] : in_llama) expect_refused(smollm2_config(), name, value);
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"activation_function", "gelu_pytorch_tanh"},
                                                 {"reorder_and_upcast_attn", true},
                                                 {"quantization_config", nullptr},
                                                 {"anything", {{"else", 1}}}})
    EXPECT_NO_THROW(parse(changed(small_gpt2_config(), name, value)));
}

TEST(ModelConfigTest, NumbersThatAreNoneAreRefusedByNameAndValue) {
  for (const char* name : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const Json& value : {Json(0), Json(-1), Json(2.5), Json(2.0), Json(1e300), Json("2"),
                              Json(std::int64_t{1} << 62), Json(~std::uint64_t{0}),
                              Json(1'000'000'000'000), Json::array({2}), Json(true)})
      expect_refused(small_gpt2_config(), name, value);
    Json without = small_gpt2_config();
    without.erase(name);
    expect_refused_text(to_text(without), name, "missing");
    without[name] = nullptr;
    expect_refused_text(to_text(without), name, "missing");
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
  for (const Json& config : {smollm2_config(), small_gpt2_config()}) {
    const ModelOptions model = parse(config).model;
    expect_same_model(parse(model_config_json(model, at::kBFloat16)).model, model);
  }
}

}  // namespace
}  // namespace ladder
