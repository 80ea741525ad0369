#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/small_pretrained.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "common/train/pretrained/tokenizer_folder.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

class PretrainedTest : public PretrainedFolderTest {
 protected:
  static void expect_equal(const TensorsByName& loaded, const TensorsByName& wanted) {
    ASSERT_EQ(loaded.size(), wanted.size());
    for (const auto& [name, tensor] : wanted)
      EXPECT_TRUE(at::equal(loaded.at(name), tensor)) << name;
  }
};

TEST_F(PretrainedTest, ReadsWhatTheFolderHolds) {
  write_model(values_);
  EXPECT_TRUE(start().is_of_another_program());
  expect_equal(load(), values_);
  EXPECT_EQ(options_.model.layers, 2);
  EXPECT_EQ(options_.model.context, 4);
  EXPECT_EQ(options_.data.context, 4);
  EXPECT_TRUE(options_.derived.contains("layers"));
  EXPECT_FALSE(options_.derived.contains("vocab-size"));
}

TEST_F(PretrainedTest, ShardsAreReadByTheirIndexWithoutAPrefixAndBuffers) {
  for (const char* prefix : {"transformer.", "model."}) {
    TensorsByName stored = with_prefix(prefix, values_);
    stored[concat(prefix, "h.0.attn.bias")] = at::ones({1, 1, 4, 4}, at::kByte);
    stored[concat(prefix, "h.0.attn.masked_bias")] = at::ones({}, at::kFloat);
    for (const int num_shards : {1, 2, 5}) {
      write_shards(folder_.path(), stored, num_shards);
      expect_equal(load(), values_);
    }
  }
}

TEST_F(PretrainedTest, ALlamaIsRead) {
  values_ = random_values(small_llama());
  write_config(small_llama_config());
  for (const char* prefix : {"", "model."}) {
    TensorsByName stored = with_prefix(prefix, values_);
    for (const char* buffer : {"layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"})
      stored[prefix + std::string(buffer)] = at::ones({1});
    write_model(stored);
    expect_equal(load(), values_);
  }
  EXPECT_EQ(options_.model.family, ModelFamily::kLlama);
  EXPECT_EQ(options_.model.kv_heads, 2);
  EXPECT_EQ(options_.model.mlp_channels, 5);
  EXPECT_EQ(options_.model.rope_theta, 5000);
  EXPECT_EQ(options_.model.norm_eps, 1e-6);
  EXPECT_EQ(options_.named_model, "llama");
}

TEST_F(PretrainedTest, ALlamasContextIsTheRunsOwn) {
  values_ = random_values(small_llama());
  write_model(values_);
  Json config = small_llama_config();
  for (const auto& [longest, context] : {std::pair{100, 100}, std::pair{1000, 128}}) {
    config["max_position_embeddings"] = longest;
    write_config(config);
    options_.model.context = 128;
    expect_equal(load(), values_);
    EXPECT_EQ(options_.model.context, context);
  }
  options_.given = {"context"};
  options_.model.context = 1000;
  expect_equal(load(), values_);
  options_.model.context = 1001;
  expect_refused<UsageError>("--context 1001", "at most 1000");
  config["model_type"] = "mistral";
  config["sliding_window"] = 200;
  write_config(config);
  options_.model.context = 200;
  expect_equal(load(), values_);
  options_.model.context = 201;
  expect_refused<UsageError>("--context 201", "at most 200", "sliding_window");
}

// A run of ours and a checkpoint both give the shape, with the context that they were trained with.
TEST_F(PretrainedTest, ACheckpointGivesItsShape) {
  const auto save = [&](const char* run, const TensorsByName& values, const ModelOptions& model) {
    return save_parameters(folder_.path(run), /*step=*/1, values, config_of_run(model),
                           "token file");
  };
  ModelOptions llama = small_llama();
  llama.context = 300;
  const fs::path checkpoint = save("gpt2", values_, small_gpt2());
  save("llama", random_values(small_llama()), llama);
  const auto finalized = [&](const std::string& path) {
    options_.output.init_from = path;
    finalize(options_);
    return options_.model;
  };
  for (const std::string& path : {checkpoint.string(), folder_.path("gpt2")}) {
    const ModelOptions model = finalized(path);
    EXPECT_FALSE(start().is_of_another_program());
    EXPECT_EQ(model.layers, 2);
    EXPECT_EQ(model.channels, 4);
    EXPECT_EQ(model.context, 4);
    EXPECT_TRUE(options_.derived.contains("layers"));
  }
  options_.given = {"context"};
  options_.model.context = 3;
  expect_throws<UsageError>([&] { finalize(options_); }, {"--context 3 contradicts "});
  options_.model.context = 1000;
  EXPECT_EQ(finalized(folder_.path("llama")).context, 1000);  // rotary positions have no end
  options_.given = {};
  const ModelOptions model = finalized(folder_.path("llama"));
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.context, 300);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.rope_theta, 5000);
}

// Two families may have the same names and shapes of tensors.
TEST_F(PretrainedTest, ACheckpointSaysItsFamily) {
  const auto save = [&](const char* run, const Json& name) {
    Json config = config_of_run(small_llama());
    config["model"] = name;
    save_parameters(folder_.path(run), /*step=*/1, random_values(small_llama()), config, "bytes");
    options_.output.init_from = folder_.path(run);
  };
  save("named", "smollm2-135m");
  finalize(options_);
  EXPECT_EQ(options_.model.family, ModelFamily::kLlama);
  EXPECT_EQ(options_.named_model, "llama");
  save("newer", "bert");
  expect_throws<CheckError>([&] { finalize(options_); }, {"state.json: damaged", "'bert'"});
  save("number", 7);
  expect_throws<CheckError>([&] { finalize(options_); }, {"state.json: damaged", "number"});
  save("other", "gpt2");
  expect_throws<CheckError>([&] { finalize(options_); }, {"state.json: damaged", "--model llama"});
}

TEST_F(PretrainedTest, TheNamedModelMustBeThatOfTheFolder) {
  values_ = random_values(small_llama());
  write_model(values_);
  write_config(small_llama_config());
  options_.given = {"model"};
  options_.named_model = "llama";
  expect_equal(load(), values_);
  options_.named_model = "gpt2";
  expect_refused<UsageError>("--model gpt2", "config.json", "has llama");
  options_.named_model = "smollm2-135m";
  expect_refused<UsageError>("--model smollm2-135m", "config.json", "another shape");
}

TEST_F(PretrainedTest, SixteenBitsAreWidened) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    TensorsByName narrow, wide;
    for (const auto& [name, tensor] : values_) {
      narrow[name] = tensor.to(type);
      wide[name] = narrow[name].to(at::kFloat);
    }
    write_model(narrow);
    expect_equal(load(), wide);
  }
}

TEST_F(PretrainedTest, LargeTensorsAreReadInPieces) {
  write_config({{"model_type", "gpt2"},
                {"vocab_size", 3000},
                {"n_positions", 1025},
                {"n_layer", 1},
                {"n_head", 1},
                {"n_embd", 300}});  // an embedding of 3.6 MB
  values_ = random_values(
      {.vocab_size = 3000, .context = 1025, .layers = 1, .heads = 1, .channels = 300});
  TensorsByName stored = values_;
  stored["lm_head.weight"] = values_["wte.weight"].clone();
  write_model(stored);
  expect_equal(load(), values_);
  stored["lm_head.weight"][2999][0] += 1;
  write_model(stored);
  expect_refused<CheckError>("model.safetensors", "lm_head.weight", "tied");
}

TEST_F(PretrainedTest, AShorterContextTakesTheFirstPositions) {
  write_model(values_);
  options_.given = {"context"};
  options_.model.context = 3;
  values_["wpe.weight"] = values_["wpe.weight"].narrow(0, 0, 3);
  expect_equal(load(), values_);
  options_.model.context = 5;
  expect_refused<UsageError>("--context 5", "config.json", "at most 4");
}

TEST_F(PretrainedTest, ATiedHeadMayBeStoredIfItIsTheEmbedding) {
  TensorsByName stored = with_prefix("transformer.", values_);
  stored["lm_head.weight"] = values_["wte.weight"].clone();
  write_model(stored);
  expect_equal(load(), values_);
  stored["lm_head.weight"][5][3] += 1;
  write_model(stored);
  expect_refused<CheckError>("model.safetensors", "lm_head.weight", "tied");
  stored["lm_head.weight"] = at::ones({5, 4});
  write_model(stored);
  expect_refused<CheckError>("model.safetensors", "lm_head.weight", "[5, 4]");
}

TEST_F(PretrainedTest, ATiedHeadMayBeStoredInsteadOfTheEmbedding) {
  const auto expect_read = [&](const char* embedding) {
    TensorsByName stored = values_;
    stored["lm_head.weight"] = stored.at(embedding);
    stored.erase(embedding);
    write_model(stored);
    options_.model = {};
    expect_equal(load(), values_);
    stored["lm_head.weight"] = at::ones({5, 4});
    write_model(stored);
    expect_refused<CheckError>("model.safetensors", embedding, "[5, 4]");
  };
  expect_read("wte.weight");
  write_config(small_llama_config());
  values_ = random_values(small_llama());
  expect_read("embed_tokens.weight");
}

TEST_F(PretrainedTest, AnUntiedHeadIsRead) {
  Json config = small_gpt2_config();
  config["tie_word_embeddings"] = false;
  write_config(config);
  write_model(values_);
  expect_refused<CheckError>(folder_.path().string(), "no tensor \"lm_head.weight\"");
  values_["lm_head.weight"] = at::randn({6, 4});
  write_model(values_);
  expect_equal(load(), values_);
}

TEST_F(PretrainedTest, GivenOptionsMustAgree) {
  write_model(values_);
  options_.given = {"layers", "heads", "channels", "tie-embeddings"};
  options_.model = small_gpt2();
  expect_equal(load(), values_);
  options_.model.heads = 4;
  expect_refused<UsageError>("--heads 4", "config.json", "has 2");
  options_.model.heads = 2;
  options_.model.tie_embeddings = false;
  expect_refused<UsageError>("--tie-embeddings false", "config.json", "has true");
}

TEST_F(PretrainedTest, TheVocabularyMayBeLargerThanThatOfTheDataNotSmaller) {
  write_model(values_);
  options_.data.vocab_size = 5;
  expect_equal(load(), values_);
  EXPECT_EQ(options_.model.vocab_size, 6);
  options_.data.vocab_size = 7;
  expect_refused<UsageError>("config.json", "6 token ids", "7 (--vocab-size)");
  options_.data.vocab_size = 0;  // the file does not tell either
  expect_equal(load(), values_);
  EXPECT_EQ(options_.data.vocab_size, 6);
  options_.data.vocab_size = 0;
  options_.data.source = "corpus";
  expect_refused<UsageError>("config.json", "6 token ids", "258, those of --tokenizer");
}

TEST_F(PretrainedTest, TextNeedsATokenizer) {
  const auto expect_refused = [&](const char* part) {
    expect_throws<UsageError>([&] { start().check_can_begin(options_); }, {part});
  };
  EXPECT_NO_THROW(start().check_can_begin(options_));  // the data are token ids
  for (const char* text : {"corpus", "mine.txt", "mine.jsonl"}) {
    options_.data.source = text;
    expect_refused("brings no tokenizer");
    expect_refused("--tokenizer bytes");
  }
  for (const std::string& named : {std::string("bytes"), folder_.path("another")}) {
    options_.data.tokenizer = named;
    EXPECT_NO_THROW(start().check_can_begin(options_));
  }
  options_.data.tokenizer = "auto";
  options_.data.source = "ids.bin";
  options_.data.validation_source = "mine.txt";
  expect_refused("the text of mine.txt");
  options_.output.init_from = folder_.write("gpt2.bin", "of llm.c");
  expect_refused("gpt2.bin: brings no tokenizer");
  options_.output.init_from = folder_.path();
  folder_.write("tokenizer.json", "{}");
  EXPECT_NO_THROW(start().check_can_begin(options_));
}

// Token ids need none, but the text that they are validated on does.
TEST_F(PretrainedTest, TheTokenizerIsReadIfAnyDataAreText) {
  folder_.write("tokenizer.json", "damaged");
  EXPECT_NO_THROW(finalize(options_));
  EXPECT_EQ(options_.data.tokenizer_files, nullptr);
  options_.data.validation_source = "mine.txt";
  expect_throws<CheckError>([&] { finalize(options_); }, {"tokenizer.json"});
  Json tokenizer = byte_tokenizer_json();
  std::swap(tokenizer["model"]["vocab"]["a"], tokenizer["model"]["vocab"]["b"]);
  folder_.write("tokenizer.json", to_text(tokenizer));
  finalize(options_);
  ASSERT_NE(options_.data.tokenizer_files, nullptr);
  EXPECT_EQ(options_.data.tokenizer_files->open()->text_of('a'), "b");
}

TEST_F(PretrainedTest, AFolderWithoutAModelIsRefusedFirst) {
  fs::create_directory(folder_.path("empty"));
  options_.output.init_from = folder_.path("empty");
  expect_throws<CheckError>([&] { start().check_can_begin(options_); },
                            {"empty: holds neither a checkpoint"});
}

TEST_F(PretrainedTest, WhatTheModelHasNoUseForIsRefusedBeforeAnythingChanges) {
  const auto changed = [&](const std::string& name, const at::Tensor& tensor) {
    TensorsByName tensors = values_;
    tensors[name] = tensor;
    return tensors;
  };
  write_model(changed("h.2.ln_1.bias", at::zeros({4})));
  expect_refused<CheckError>("model.safetensors", "\"h.2.ln_1.bias\"", "no place");
  write_model(changed("h.1.ln_1.bias", at::zeros({5})));
  expect_refused<CheckError>("model.safetensors", "\"h.1.ln_1.bias\"", "[5]", "[4]");
  write_model(changed("wpe.weight", at::zeros({3, 4})));
  expect_refused<CheckError>("model.safetensors", "\"wpe.weight\"", "[3, 4]");
  write_model(changed("h.1.ln_1.bias", at::zeros({4}, at::kDouble)));
  expect_refused<CheckError>("model.safetensors", "\"h.1.ln_1.bias\"", "F64");
  write_model(changed("transformer.wte.weight", at::zeros({6, 4})));
  expect_refused<CheckError>("model.safetensors", "wte.weight", "same tensor");
  values_.erase("h.1.ln_2.weight");
  write_model(values_);
  expect_refused<CheckError>(folder_.path().string(), "\"h.1.ln_2.weight\"");
}

// A file as llm.c writes it: kind by kind, over all layers, linear weights [out, in].
std::string llm_c_file(const TensorsByName& values, std::int32_t version, std::int64_t padding) {
  const ModelOptions model = small_gpt2();
  std::string bytes(1024, '\0');
  const std::int32_t words[] = {20240326, version, 4, 6,
                                2,        2,       4, static_cast<std::int32_t>(6 + padding)};
  std::memcpy(bytes.data(), words, sizeof words);
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor stored = tensor.to(version == 3 ? at::kFloat : at::kBFloat16).contiguous();
    bytes.append(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
  };
  add(values.at("wte.weight"));
  add(at::zeros({padding, 4}));
  add(values.at("wpe.weight"));
  for (const char* kind :
       {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
    for (const char* part : {"weight", "bias"}) {
      for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const at::Tensor& tensor = values.at(concat("h.", layer, ".", kind, ".", part));
        add(tensor.dim() == 2 ? tensor.t() : tensor);
      }
    }
  }
  add(values.at("ln_f.weight"));
  add(values.at("ln_f.bias"));
  return bytes;
}

TEST_F(PretrainedTest, ReadsLlmCsCheckpoints) {
  for (const std::int64_t padding : {0, 3}) {
    options_.output.init_from = folder_.write("gpt2.bin", llm_c_file(values_, 3, padding));
    EXPECT_TRUE(start().is_of_another_program());
    expect_equal(load(), values_);
    EXPECT_EQ(options_.model.vocab_size, 6);
  }
  for (auto& [name, tensor] : values_) tensor = tensor.to(at::kBFloat16).to(at::kFloat);
  folder_.write("gpt2.bin", llm_c_file(values_, 5, 2));
  expect_equal(load(), values_);
}

TEST_F(PretrainedTest, ADamagedFileOfLlmCIsRefused) {
  const std::string good = llm_c_file(values_, 3, 2);
  options_.output.init_from = folder_.path("gpt2.bin");
  folder_.write("gpt2.bin", good);
  for (std::size_t size = good.size(); size-- > 0;) {
    fs::resize_file(folder_.path("gpt2.bin"), size);
    expect_throws<CheckError>([&] { LlmCFile(folder_.path("gpt2.bin")); }, {"gpt2.bin: "});
  }
  folder_.write("gpt2.bin", good + "x");
  expect_refused<CheckError>("gpt2.bin: ", "needs");
  for (std::size_t word = 0; word < 8; ++word) {
    for (const std::int32_t value : {0, -1, 1 << 30, 7, 4}) {
      std::string bytes = good;
      if (std::memcmp(bytes.data() + 4 * word, &value, 4) == 0) continue;
      if (word == 5) continue;  // the number of heads moves no byte
      std::memcpy(bytes.data() + 4 * word, &value, 4);
      folder_.write("gpt2.bin", bytes);
      if (word == 3 && value == 7) continue;  // one of the two that fill up
      EXPECT_ANY_THROW(load()) << "word " << word << " is " << value;
    }
  }
  for (const std::int32_t magic : {20240520, 20240801}) {
    std::string bytes = good;
    std::memcpy(bytes.data(), &magic, 4);
    folder_.write("gpt2.bin", bytes);
    expect_refused<CheckError>("gpt2.bin", "--data");
  }
}

}  // namespace
}  // namespace ladder
