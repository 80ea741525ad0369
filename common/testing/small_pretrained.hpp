// For tests: small models as other programs write them, and as our checkpoints keep them.
#pragma once

#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/start.hpp"

namespace ladder {

using TensorsByName = std::map<std::string, at::Tensor>;

inline ModelOptions small_gpt2() {
  return {.vocab_size = 6, .context = 4, .layers = 2, .heads = 2, .channels = 4};
}

// As transformers writes it, without the settings that a reader ignores.
inline Json small_gpt2_config() {
  return {{"model_type", "gpt2"}, {"vocab_size", 6}, {"n_positions", 4},
          {"n_layer", 2},         {"n_head", 2},     {"n_embd", 4}};
}

inline ModelOptions small_llama() {
  return {.family = ModelFamily::kLlama,
          .vocab_size = 6,
          .context = 4,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .channels = 8,
          .mlp_channels = 5,
          .rope_theta = 5000,
          .norm_eps = 1e-6};
}

inline Json small_llama_config() {
  return {{"model_type", "llama"},      {"vocab_size", 6},          {"max_position_embeddings", 4},
          {"num_hidden_layers", 2},     {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"hidden_size", 8},           {"intermediate_size", 5},   {"rope_theta", 5000},
          {"tie_word_embeddings", true}};
}

// Random values for all its tensors, by our names.
inline TensorsByName random_values(const ModelOptions& options) {
  TensorsByName values;
  for (const auto& [name, tensor] : build_layers(options, /*seed=*/1).leaves())
    values[name] = at::randn(tensor.sizes());
  return values;
}

// What a checkpoint keeps of the options of a run that trains it; of a GPT-2 only what has been there
// from the first version on.
inline Json config_of_run(const ModelOptions& model) {
  Json config = {{"layers", model.layers},
                 {"heads", model.heads},
                 {"channels", model.channels},
                 {"context", model.context}};
  if (model.family == ModelFamily::kLlama)
    config.update({{"kv-heads", model.kv_heads},
                   {"mlp-channels", model.mlp_channels},
                   {"rope-theta", model.rope_theta},
                   {"norm-eps", model.norm_eps}});
  return config;
}

// A checkpoint of these parameters, in RUN/checkpoints. Returns its folder.
inline std::filesystem::path save_parameters(const std::filesystem::path& run, std::int64_t step,
                                             const TensorsByName& values, const Json& config,
                                             const std::string& tokenizer) {
  std::vector<NamedTensor> parameters;
  for (const auto& [name, tensor] : values) parameters.push_back({name, tensor});
  const TrainState state{
      whole_tensors(parameters), whole_tensors({}), /*optimizer_steps=*/0, {}, tokenizer};
  return save_checkpoint(run, step, state, config).path;
}

inline void write_safetensors(const std::filesystem::path& path, const TensorsByName& tensors) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors)
    stored.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, stored, {{"format", "pt"}});
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  writer.finish();
}

// Cuts the tensors, in the order of their names, into so many shards, and writes the index.
inline void write_shards(const std::filesystem::path& folder, const TensorsByName& tensors,
                         int num_shards) {
  std::vector<TensorsByName> shards(static_cast<std::size_t>(num_shards));
  Json map = Json::object();
  std::size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t shard = i++ * shards.size() / tensors.size();
    shards[shard][name] = tensor;
    map[name] = concat("model-", shard + 1, ".safetensors");
  }
  for (std::size_t s = 0; s < shards.size(); ++s)
    write_safetensors(folder / concat("model-", s + 1, ".safetensors"), shards[s]);
  write_text_file(folder / "model.safetensors.index.json", to_text({{"weight_map", map}}));
}

inline TensorsByName with_prefix(const std::string& prefix, const TensorsByName& tensors) {
  TensorsByName renamed;
  for (const auto& [name, tensor] : tensors) renamed[prefix + name] = tensor;
  return renamed;
}

inline void expect_same_model(const ModelOptions& a, const ModelOptions& b) {
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(head_channels_of(a), head_channels_of(b));
  EXPECT_EQ(a.channels, b.channels);
  EXPECT_EQ(a.mlp_channels, b.mlp_channels);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope_scaling, b.rope_scaling);
  EXPECT_EQ(a.no_rope_interval, b.no_rope_interval);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.gelu, b.gelu);
}

// A small GPT-2 in a folder, and what a run gets that starts from it.
class PretrainedFolderTest : public ::testing::Test {
 protected:
  PretrainedFolderTest() {
    options_.data.source = "tokens.bin";
    options_.data.vocab_size = 6;
    options_.output.init_from = folder_.path();
    write_config(small_gpt2_config());
  }

  void write_config(const Json& config) const { folder_.write("config.json", to_text(config)); }
  void write_model(const TensorsByName& tensors) const {
    write_safetensors(folder_.path("model.safetensors"), tensors);
  }
  Start start() const { return Start(options_.output.init_from); }

  // The parameters of a model of the run's, once loaded.
  TensorsByName load() {
    finalize(options_);
    return load_parameters();
  }
  TensorsByName load_parameters() const {
    const std::vector<NamedTensor> parameters = build_layers(options_.model, /*seed=*/2).leaves();
    const TrainState state{.parameters = whole_tensors(parameters)};
    const std::string hash = start().load(state, options_.model.tie_embeddings);
    EXPECT_EQ(hash, tensor_hash(state.parameters));
    TensorsByName loaded;
    for (const auto& [name, tensor] : parameters) loaded[name] = tensor.detach();
    return loaded;
  }
  template <class Error, class... Parts>
  void expect_refused(const Parts&... parts) {
    expect_throws<Error>([&] { load(); }, {parts...});
  }

  TempFolder folder_;
  TrainOptions options_;
  TensorsByName values_ = random_values(small_gpt2());
};

}  // namespace ladder
