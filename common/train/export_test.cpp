#include "common/train/export.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/testing/encoded_bytes.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/small_pretrained.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/with_tokenizer.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "common/train/pretrained/tokenizer_folder.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A checkpoint of a small GPT-2.
class ExportTest : public ::testing::Test {
 protected:
  fs::path save(const TensorsByName& values, const std::string& tokenizer = "bytes") {
    return save_parameters(folder_.path("run"), step_++, values, config_, tokenizer);
  }
  Json json_in(const std::string& name) const {
    return Json::parse(read_text_file(folder_.path("out/" + name)));
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  template <class Error, class... Parts>
  void expect_refused(const fs::path& checkpoint, at::ScalarType dtype, const Parts&... parts) {
    expect_throws<Error>([&] { export_checkpoint(checkpoint, folder_.path("out"), dtype); },
                         {parts...});
    EXPECT_THAT(entries(), ElementsAre("run"));
  }

  TempFolder folder_;
  std::int64_t step_ = 0;
  Json config_ = config_of_run(small_gpt2());
  TensorsByName values_ = random_values(small_gpt2());
};

TEST_F(ExportTest, WhatIsWrittenIsReadAgain) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    export_checkpoint(save(values_), folder_.path("out"), dtype);
    const ModelOptions model =
        parse_model_config(read_text_file(folder_.path("out/config.json")), "config.json").model;
    expect_same_model(completed(model), completed(small_gpt2()));
    HuggingFaceFolder exported(folder_.path("out"), ModelFamily::kGpt2, /*has_tied_head=*/true);
    ASSERT_EQ(exported.tensors().size(), values_.size());
    for (const auto& [name, tensor] : values_) {
      const at::Tensor read = at::zeros_like(tensor);
      exported.read(name, read);
      EXPECT_TRUE(at::equal(read, tensor.to(dtype).to(at::kFloat))) << name;
    }
    fs::remove_all(folder_.path("out"));
  }
}

TEST_F(ExportTest, ALlamaIsWrittenAndReadAgain) {
  values_ = random_values(small_llama());
  config_ = config_of_run(small_llama());
  export_checkpoint(save(values_), folder_.path("out"), at::kFloat);
  EXPECT_EQ(json_in("config.json")["architectures"], Json::array({"LlamaForCausalLM"}));
  const Start start(folder_.path("out"));
  const ModelOptions model = start.model();
  expect_same_model(model, small_llama());
  TensorsByName read;
  std::vector<NamedTensor> parameters;
  for (const auto& [name, tensor] : values_)
    parameters.push_back({name, read[name] = at::zeros_like(tensor)});
  start.load({.parameters = whole_tensors(parameters)}, model.tie_embeddings);
  for (const auto& [name, tensor] : values_) EXPECT_TRUE(at::equal(read[name], tensor)) << name;
  const SafetensorsReader file(folder_.path("out/model.safetensors"));
  for (const StoredTensor& tensor : file.tensors()) EXPECT_THAT(tensor.name, StartsWith("model."));
}

// A tokenizer's folder: every byte is a token, and "ab" is another one.
void write_tokenizer(const fs::path& folder) {
  Json file = byte_tokenizer_json();
  file["model"]["vocab"]["ab"] = 258;
  file["model"]["merges"] = Json::array({"a b"});
  fs::create_directories(folder);
  write_text_file(folder / "tokenizer.json", to_text(file));
  write_text_file(folder / "tokenizer_config.json", to_text(byte_tokenizer_config_json(4)));
  write_text_file(folder / "generation_config.json", R"({"eos_token_id": [7, 256]})");
  write_text_file(folder / "config.json", R"({"eos_token_id": 3})");
}

TEST_F(ExportTest, ARunKeepsItsTokenizerAndTheExportBringsIt) {
  write_tokenizer(folder_.path("tokens"));
  const std::string name = BpeTokenizer(folder_.path("tokens")).name();
  const fs::path checkpoint = save(values_, name);
  const auto do_export = [&] { export_checkpoint(checkpoint, folder_.path("out"), at::kFloat); };
  expect_throws<CheckError>(do_export, {"run/tokenizer", "is missing"});
  for (const std::string from : {"tokens/tokenizer.json", "tokens", "tokens"}) {  // twice the same
    const DataOptions data = with_tokenizer({.tokenizer = folder_.path(from)});
    keep_tokenizer(data, folder_.path("run"));
    EXPECT_EQ(BpeTokenizer(folder_.path("run/tokenizer")).name(), name);
    if (from != "tokens") fs::remove_all(folder_.path("run/tokenizer"));
  }
  EXPECT_FALSE(fs::exists(folder_.path("run/tokenizer/config.json")));
  do_export();
  EXPECT_EQ(BpeTokenizer(folder_.path("out")).name(), name);
  for (const char* file : {"config.json", "generation_config.json"})
    EXPECT_EQ(json_in(file)["eos_token_id"], Json::array({256, 7, 3})) << file;
}

// Keeps the tokenizer in tokens/, and exports a run that was trained with it.
class ExportedTokensTest : public ExportTest {
 protected:
  ExportedTokensTest() { write_tokenizer(folder_.path("tokens")); }

  void export_run() {
    for (const char* folder : {"run", "out"}) fs::remove_all(folder_.path(folder));
    const DataOptions data = with_tokenizer({.tokenizer = folder_.path("tokens")});
    keep_tokenizer(data, folder_.path("run"));
    export_checkpoint(save(values_, BpeTokenizer(data.tokenizer).name()), folder_.path("out"),
                      at::kFloat);
  }
  void set(const std::string& name, const Json& settings) {
    write_text_file(folder_.path("tokens/" + name), to_text(settings));
  }
};

// 50256 is the default of a class in transformers, which this vocabulary does not reach.
TEST_F(ExportedTokensTest, ATextEndsWithAllThatAnyFileNames) {
  const auto expect_ends = [&](const Json& ends) {
    export_run();
    for (const char* file : {"config.json", "generation_config.json"})
      EXPECT_EQ(json_in(file)["eos_token_id"], ends) << file;
  };
  set("config.json", {{"eos_token_id", {3, 50256}}});
  set("generation_config.json", {{"eos_token_id", 7}, {"temperature", 0.5}});
  expect_ends({256, 7, 3});
  EXPECT_EQ(json_in("generation_config.json")["temperature"], 0.5);
  set("generation_config.json", {{"temperature", 0.5}});
  expect_ends({256, 3});
  fs::remove(folder_.path("tokens/generation_config.json"));
  expect_ends({256, 3});
  Json config = byte_tokenizer_config_json(4);
  config["eos_token"] = "<|padding|>";
  set("tokenizer_config.json", config);
  expect_ends({256, 3, 257});
  set("config.json", {{"eos_token_id", 50256}});
  expect_ends({256, 257});
  set("tokenizer_config.json", Json::object());
  expect_ends(256);
}

TEST_F(ExportedTokensTest, ATextBeginsAsItDidInTheSource) {
  const auto expect_begin = [&](const Json& begin) {
    export_run();
    for (const char* file : {"config.json", "generation_config.json"}) {
      const Json settings = json_in(file);
      ASSERT_TRUE(settings.contains("bos_token_id")) << file;
      EXPECT_EQ(settings["bos_token_id"], begin) << file;
    }
  };
  set("config.json", {{"bos_token_id", 5}});
  set("generation_config.json", {{"bos_token_id", 9}});
  expect_begin(9);
  set("generation_config.json", Json::object());
  expect_begin(5);
  set("config.json", {{"bos_token_id", 50256}, {"pad_token_id", -1}});
  expect_begin(256);  // the tokenizer's
  set("tokenizer_config.json", {{"eos_token", "<|endoftext|>"}});
  expect_begin(nullptr);
}

// What other settings of a source would make of a text, this run's rows did not have.
TEST_F(ExportedTokensTest, NothingIsAddedToATextButWhatTheRunAdded) {
  Json config = byte_tokenizer_config_json(4);
  for (const char* name : {"add_bos_token", "add_eos_token", "add_prefix_space"})
    config[name] = true;
  set("tokenizer_config.json", config);
  export_run();
  for (const char* name : {"add_bos_token", "add_eos_token", "add_prefix_space"})
    EXPECT_EQ(json_in("tokenizer_config.json")[name], false) << name;
  EXPECT_EQ(json_in("tokenizer_config.json")["model_input_names"],
            Json::array({"input_ids", "attention_mask"}));
  Json file = Json::parse(read_text_file(folder_.path("tokens/tokenizer.json")));
  file["pre_tokenizer"]["add_prefix_space"] = true;
  set("tokenizer.json", file);
  set("tokenizer_config.json", Json::object());
  export_run();
  EXPECT_EQ(json_in("tokenizer_config.json")["add_prefix_space"], true);
}

// By its post-processor, which counts more than what another file says of it.
TEST_F(ExportedTokensTest, WhatTheTokenizerAddsToATextIsSaid) {
  Json file = Json::parse(read_text_file(folder_.path("tokens/tokenizer.json")));
  const auto add = [&](const Json& single) {
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", single},
        {"special_tokens",
         {{"<|padding|>", {{"ids", {257}}}}, {"<|endoftext|>", {{"ids", {256}}}}}}};
    set("tokenizer.json", file);
  };
  const auto expect = [&](bool begins, bool ends) {
    export_run();
    EXPECT_EQ(json_in("tokenizer_config.json")["add_bos_token"], begins);
    EXPECT_EQ(json_in("tokenizer_config.json")["add_eos_token"], ends);
  };
  const Json text = {{"Sequence", {{"id", "A"}}}},
             begin = {{"SpecialToken", {{"id", "<|padding|>"}}}},
             end = {{"SpecialToken", {{"id", "<|endoftext|>"}}}};
  set("generation_config.json", {{"bos_token_id", 5}});
  set("special_tokens_map.json", {{"bos_token", "<|endoftext|>"}});
  add({begin, text});
  expect(true, false);
  for (const char* name : {"config.json", "generation_config.json"})
    EXPECT_EQ(json_in(name)["bos_token_id"], 257) << name;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    EXPECT_EQ(json_in(name)["bos_token"], "<|padding|>") << name;
  add({begin, text, end});
  expect(true, true);
  add({text, end});
  expect(false, true);
  EXPECT_EQ(json_in("config.json")["bos_token_id"], 5);
  add(Json::array({text}));
  expect(false, false);
}

TEST_F(ExportedTokensTest, FurtherSpecialTokensHaveANameThatAnyTransformersReads) {
  Json config = byte_tokenizer_config_json(4);
  config["extra_special_tokens"] = {"<|padding|>"};
  set("tokenizer_config.json", config);
  export_run();
  config = json_in("tokenizer_config.json");
  EXPECT_EQ(config["additional_special_tokens"], Json::array({"<|padding|>"}));
  EXPECT_FALSE(config.contains("extra_special_tokens"));
}

TEST_F(ExportedTokensTest, ATokenizerWithoutPaddingGetsTheRuns) {
  set("tokenizer_config.json", {{"pad_token", nullptr}});
  export_run();
  EXPECT_EQ(json_in("tokenizer_config.json")["pad_token"], "<|endoftext|>");
  EXPECT_EQ(json_in("config.json")["pad_token_id"], 256);
  set("generation_config.json", {{"pad_token_id", 257}});
  export_run();
  EXPECT_EQ(json_in("tokenizer_config.json")["pad_token"], "<|padding|>");
  EXPECT_EQ(json_in("config.json")["pad_token_id"], 257);
}

// Where readers besides transformers look for them.
TEST_F(ExportedTokensTest, AddedTokensOfAnyFileAreInTokenizerJson) {
  const auto expect_listed = [&] {
    export_run();
    const Json added = json_in("tokenizer.json")["added_tokens"];
    ASSERT_EQ(added.size(), 2);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(added[i]["id"], 256 + i);
      EXPECT_EQ(added[i]["special"], true);
    }
    EXPECT_EQ(added[0]["content"], "<|endoftext|>");
    EXPECT_EQ(BpeTokenizer(folder_.path("out")).name(),
              BpeTokenizer(folder_.path("tokens")).name());
  };
  Json file = Json::parse(read_text_file(folder_.path("tokens/tokenizer.json")));
  const Json listed = std::exchange(file["added_tokens"], Json::array());
  set("tokenizer.json", file);
  expect_listed();  // named in tokenizer_config.json
  Json config = byte_tokenizer_config_json(4);
  config["added_tokens_decoder"] = {{"257", listed[1]}, {"256", listed[0]}};
  set("tokenizer_config.json", config);
  expect_listed();
  file["added_tokens"] = listed;
  const std::string usual = to_text(file);
  folder_.write("tokens/tokenizer.json", usual);
  expect_listed();
  EXPECT_EQ(read_text_file(folder_.path("out/tokenizer.json")), usual);  // to the byte
}

TEST_F(ExportedTokensTest, TheOlderPairOfFilesBecomesTokenizerJson) {
  for (const char* end : {"</s>", "<|endoftext|>"}) {
    fs::remove_all(folder_.path("tokens"));
    fs::create_directories(folder_.path("tokens"));
    set("vocab.json", {{"h", 0}, {"i", 1}, {"hi", 2}, {end, 3}});
    folder_.write("tokens/merges.txt", "#version: 0.2\nh i\n");
    set("special_tokens_map.json", {{"eos_token", end}});
    export_run();
    for (const char* file : {"vocab.json", "merges.txt"})
      EXPECT_FALSE(fs::exists(folder_.path("out/") + file));
    EXPECT_EQ(json_in("tokenizer.json")["added_tokens"][0]["content"], end);
    EXPECT_EQ(json_in("tokenizer_config.json")["tokenizer_class"], "PreTrainedTokenizerFast");
    EXPECT_EQ(BpeTokenizer(folder_.path("out")).name(),
              BpeTokenizer(folder_.path("tokens")).name());
  }
}

// Settings pass from a folder of transformers to a run, and on to the next run.
TEST_F(ExportTest, WhatARunStartedFromTellsItsExport) {
  ModelOptions options = small_llama();
  const auto export_of = [&](const std::string& run, std::int64_t context) {
    options.context = context;
    Json run_config = config_of_run(small_llama());
    run_config.update({{"model", traits_of(options.family).name()}, {"context", context}});
    fs::remove_all(folder_.path("out"));
    export_checkpoint(
        save_parameters(folder_.path(run), 0, random_values(options), run_config, "token file"),
        folder_.path("out"), at::kFloat);
    return json_in("config.json");
  };
  Json config = small_llama_config();
  config.update({{"max_position_embeddings", 64}, {"bos_token_id", 1}, {"eos_token_id", {2, 9}}});
  fs::create_directories(folder_.path("model"));
  folder_.write("model/config.json", to_text(config));
  keep_settings_of_start(folder_.path("model"), folder_.path("first"), 4);
  Json exported = export_of("first", 4);
  EXPECT_EQ(exported["max_position_embeddings"], 64);
  EXPECT_EQ(exported["bos_token_id"], 1);
  EXPECT_EQ(exported["eos_token_id"], 2);  // the vocabulary has 6 tokens
  keep_settings_of_start(folder_.path("first"), folder_.path("second"), 4);
  EXPECT_EQ(export_of("second", 100)["max_position_embeddings"], 100);
  keep_settings_of_start(folder_.path("second/checkpoints/step_000000"), folder_.path("third"), 4);
  exported = export_of("third", 8);
  EXPECT_EQ(exported["max_position_embeddings"], 64);
  EXPECT_EQ(exported["eos_token_id"], 2);
  keep_settings_of_start("", folder_.path("new"), 4);
  EXPECT_EQ(export_of("new", 8)["max_position_embeddings"], 8);
  // A window stays, unless texts were longer.
  config.update({{"model_type", "mistral"}, {"sliding_window", 32}});
  folder_.write("model/config.json", to_text(config));
  keep_settings_of_start(folder_.path("model"), folder_.path("mistral"), 4);
  options.family = ModelFamily::kMistral;
  exported = export_of("mistral", 32);
  EXPECT_EQ(exported["max_position_embeddings"], 64);
  EXPECT_EQ(exported["sliding_window"], 32);
  keep_settings_of_start(folder_.path("mistral"), folder_.path("longer"), 4);
  EXPECT_TRUE(export_of("longer", 33).at("sliding_window").is_null());
}

// They follow those of the run, as they were, also after another run.
TEST_F(ExportTest, PositionsThatTheRunDidNotUseComeFromItsStart) {
  fs::create_directories(folder_.path("model"));
  folder_.write("model/config.json", to_text(small_gpt2_config()));
  write_safetensors(folder_.path("model/model.safetensors"), with_prefix("transformer.", values_));
  ModelOptions model = small_gpt2();
  model.context = 3;
  const TensorsByName trained = random_values(model);
  keep_settings_of_start(folder_.path("model"), folder_.path("first"), 3);
  fs::remove_all(folder_.path("model"));
  for (const char* run : {"first", "second"}) {
    fs::remove_all(folder_.path("out"));
    export_checkpoint(
        save_parameters(folder_.path(run), 0, trained, config_of_run(model), "token file"),
        folder_.path("out"), at::kFloat);
    EXPECT_EQ(json_in("config.json")["n_positions"], 4);
    const at::Tensor read = at::zeros_like(values_.at("wpe.weight"));
    HuggingFaceFolder(folder_.path("out"), ModelFamily::kGpt2, true).read("wpe.weight", read);
    EXPECT_TRUE(at::equal(read.slice(0, 0, 3), trained.at("wpe.weight")));
    EXPECT_TRUE(at::equal(read.slice(0, 3), values_.at("wpe.weight").slice(0, 3)));
    keep_settings_of_start(folder_.path("first"), folder_.path("second"), 3);
  }
}

// transformers 5 has one way to split their text.
TEST_F(ExportTest, AQwen2WithAnotherTokenizerComesWithAWarning) {
  ModelOptions model = small_llama();
  model.family = ModelFamily::kQwen2;
  Json config = config_of_run(small_llama());
  config["model"] = "qwen2";
  EXPECT_EQ(export_checkpoint(save(values_), folder_.path("gpt2"), at::kFloat), "");
  values_ = random_values(model);
  config_ = config;
  EXPECT_THAT(export_checkpoint(save(values_), folder_.path("out"), at::kFloat),
              HasSubstr(concat("PreTrainedTokenizerFast.from_pretrained('", folder_.path("out"))));
}

// The file alone does not say what ends a text.
TEST_F(ExportTest, ANamedFileIsKeptWithWhatIsReadBesideIt) {
  for (const char* beside : {"tokenizer_config.json", "special_tokens_map.json"}) {
    Json file = byte_tokenizer_json();
    file["added_tokens"][0]["content"] = "</s>";
    file["model"]["vocab"].erase("<|endoftext|>");
    file["model"]["vocab"]["</s>"] = 256;
    fs::create_directories(folder_.path("tokens"));
    write_text_file(folder_.path("tokens/mine.json"), to_text(file));
    write_text_file(folder_.path("tokens/tokenizer.json"), "another one");
    write_text_file(folder_.path("tokens/") + beside, R"({"eos_token": "</s>"})");
    write_text_file(folder_.path("tokens/config.json"), R"({"eos_token_id": [256, 3]})");
    const DataOptions data = with_tokenizer({.tokenizer = folder_.path("tokens/mine.json")});
    keep_tokenizer(data, folder_.path("run"));
    const std::string name = BpeTokenizer(data.tokenizer).name();
    EXPECT_EQ(BpeTokenizer(folder_.path("run/tokenizer")).name(), name);
    EXPECT_NO_THROW(keep_tokenizer(data, folder_.path("run")));  // as a resumed run does
    export_checkpoint(save(values_, name), folder_.path("out"), at::kFloat);
    EXPECT_EQ(BpeTokenizer(folder_.path("out")).name(), name);
    EXPECT_EQ(json_in("generation_config.json")["eos_token_id"], Json::array({256, 3}));
    for (const char* folder : {"tokens", "run", "out"}) fs::remove_all(folder_.path(folder));
  }
}

TEST_F(ExportTest, WhatCannotBeKeptIsRefusedBeforeTraining) {
  write_tokenizer(folder_.path("tokens"));
  const DataOptions data = with_tokenizer({.tokenizer = folder_.path("tokens")});
  const auto expect = [&](const std::string& file, const std::string& reason) {
    expect_throws<CheckError>([&] { keep_tokenizer(data, folder_.path("run")); }, {file, reason});
    EXPECT_FALSE(fs::exists(folder_.path("run/tokenizer")));
  };
  for (const char* end : {"\"</s>\"", "[0, \"</s>\"]", "-1", "{}"}) {
    folder_.write("tokens/generation_config.json", concat("{\"eos_token_id\": ", end, "}"));
    expect("generation_config.json", "neither a token id nor a list");
  }
  fs::remove(folder_.path("tokens/generation_config.json"));
  folder_.write("tokens/tokenizer.json", to_text(byte_tokenizer_json()));
  expect("another tokenizer", "have changed meanwhile");
}

TEST_F(ExportTest, AModelOfEncodedDataBringsWhatTheyWereEncodedWith) {
  EncodedParts parts;
  parts.files = {{"chat_template.jinja", "{{ messages }}"},
                 {"generation_config.json", R"({"eos_token_id": [4, 2, 999], "pad_token_id": 1})"},
                 {"tokenizer.model", "any"},
                 {"tokenizer_config.json", R"({"eos_token": "</s>"})"}};
  const DataOptions data = with_tokenizer({.source = folder_.write("a.bin", encoded_bytes(parts))});
  keep_tokenizer(data, folder_.path("run"));
  keep_tokenizer(data, folder_.path("run"));  // again, as a run that is resumed does
  const fs::path checkpoint = save(values_, open_tokenizer(data)->name());
  export_checkpoint(checkpoint, folder_.path("out"), at::kFloat);
  for (const char* name : {"chat_template.jinja", "tokenizer.model", "tokenizer_config.json"})
    EXPECT_EQ(read_text_file(folder_.path(concat("out/", name))), parts.files[name]);
  for (const char* name : {"config.json", "generation_config.json"}) {
    EXPECT_EQ(json_in(name)["eos_token_id"], Json::array({4, 2})) << name;
    EXPECT_EQ(json_in(name)["pad_token_id"], 1) << name;
  }
  write_text_file(folder_.path("run/tokenizer/tokenizer.model"), "another");
  expect_throws<CheckError>(
      [&] { export_checkpoint(checkpoint, folder_.path("more"), at::kFloat); },
      {"run/tokenizer", "encoded "});
  expect_throws<CheckError>([&] { keep_tokenizer(data, folder_.path("run")); },
                            {"run/tokenizer", "another tokenizer"});
}

TEST_F(ExportTest, AnotherTokenizerInTheRunIsRefused) {
  write_tokenizer(folder_.path("run/tokenizer"));
  const fs::path checkpoint = save(values_, "bpe of another run");
  expect_throws<CheckError>([&] { export_checkpoint(checkpoint, folder_.path("out"), at::kFloat); },
                            {"run/tokenizer", "'bpe of another run'"});
  fs::create_directory(folder_.path("mine"));
  write_text_file(folder_.path("mine/tokenizer.json"), to_text(byte_tokenizer_json()));
  const DataOptions data = with_tokenizer({.tokenizer = folder_.path("mine")});
  expect_throws<CheckError>([&] { keep_tokenizer(data, folder_.path("run")); },
                            {"run/tokenizer", "another tokenizer"});
  EXPECT_NO_THROW(keep_tokenizer({.tokenizer = "bytes"}, folder_.path("run")));
}

// transformers looks for these very names.
TEST_F(ExportTest, NamesAreThoseOfTransformers) {
  values_["lm_head.weight"] = at::randn({6, 4});
  export_checkpoint(save(values_), folder_.path("out"), at::kBFloat16);
  const SafetensorsReader file(folder_.path("out/model.safetensors"));
  std::set<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) {
    names.insert(tensor.name);
    EXPECT_EQ(tensor.dtype, at::kBFloat16);
  }
  EXPECT_TRUE(names.contains("lm_head.weight"));
  EXPECT_TRUE(names.contains("transformer.wte.weight"));
  EXPECT_TRUE(names.contains("transformer.h.1.attn.c_attn.weight"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(json_in("config.json")["architectures"], Json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(json_in("config.json")["torch_dtype"], "bfloat16");
  EXPECT_EQ(json_in("config.json")["tie_word_embeddings"], false);
}

TEST_F(ExportTest, AModelOfBytesBringsItsTokenizer) {
  export_checkpoint(save(values_), folder_.path("out"), at::kFloat);
  EXPECT_EQ(json_in("config.json")["eos_token_id"], 256);
  EXPECT_EQ(json_in("generation_config.json")["pad_token_id"], 257);
  EXPECT_EQ(json_in("tokenizer.json"), byte_tokenizer_json());
  EXPECT_EQ(json_in("tokenizer_config.json")["model_max_length"], 4);
  fs::remove_all(folder_.path("out"));
  export_checkpoint(save(values_, "token file"), folder_.path("out"), at::kFloat);
  EXPECT_FALSE(fs::exists(folder_.path("out/tokenizer.json")));
  EXPECT_TRUE(json_in("config.json")["eos_token_id"].is_null());
}

// Unless it is named: then it is the BPE that transformers sees, to which <|endoftext|> in a text is
// the end of it.
TEST_F(ExportTest, AutoReadsAnExportedModelOfBytesAsBytes) {
  export_checkpoint(save(values_), folder_.path("out"), at::kFloat);
  const std::string out = folder_.path("out");
  EXPECT_EQ(open_tokenizer(with_tokenizer({.pretrained = out}))->name(), "bytes");
  EXPECT_EQ(tokenizer_path(with_tokenizer({.pretrained = out})), fs::path());
  EXPECT_THAT(open_tokenizer(with_tokenizer({.tokenizer = out}))->name(), StartsWith("bpe "));
  Json file = byte_tokenizer_json();
  std::swap(file["model"]["vocab"]["a"], file["model"]["vocab"]["b"]);
  write_text_file(out + "/tokenizer.json", to_text(file));
  EXPECT_THAT(open_tokenizer(with_tokenizer({.pretrained = out}))->name(), StartsWith("bpe "));
}

TEST_F(ExportTest, NothingIsOverwritten) {
  const fs::path checkpoint = save(values_);
  fs::create_directory(folder_.path("out"));
  folder_.write("out/mine", "mine");
  expect_throws<UsageError>([&] { export_checkpoint(checkpoint, folder_.path("out"), at::kFloat); },
                            {"already exists"});
  EXPECT_EQ(read_text_file(folder_.path("out/mine")), "mine");
  EXPECT_THAT(entries(), ElementsAre("out", "run"));
}

TEST_F(ExportTest, ADamagedCheckpointLeavesNothingBehind) {
  const fs::path weights = save(values_) / "model.safetensors";
  std::string bytes = read_text_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  expect_refused<CheckError>(weights.parent_path(), at::kFloat, "model.safetensors", "damaged");
  fs::remove(weights);
  expect_refused<CheckError>(weights.parent_path(), at::kFloat, "model.safetensors");
}

// The run's options and its tensors disagree.
TEST_F(ExportTest, AnotherModelsOptionsAreRefused) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{{"layers", 1},
                                                                             {"heads", 3},
                                                                             {"channels", 8},
                                                                             {"context", 5},
                                                                             {"layers", 1 << 30},
                                                                             {"heads", "two"},
                                                                             {"heads", 0}}) {
    const Json before = config_;
    config_[name] = value;
    expect_refused<CheckError>(save(values_), at::kFloat, "run");
    config_ = before;
    config_.erase(name);
    expect_refused<CheckError>(save(values_), at::kFloat, name);
    config_ = before;
  }
}

TEST_F(ExportTest, ValuesThatATypeCannotHoldAreRefused) {
  values_["ln_f.weight"][1] = 70'000;
  const fs::path checkpoint = save(values_);
  expect_refused<UsageError>(checkpoint, at::kHalf, "ln_f.weight", "--dtype fp16");
  EXPECT_NO_THROW(export_checkpoint(checkpoint, folder_.path("out"), at::kBFloat16));
}

// A limit on the size of files is a full disk that a test can have.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST_F(ExportTest, AFullDiskLeavesNothingBehind) {
  const fs::path checkpoint = save(values_);
  export_checkpoint(checkpoint, folder_.path("out"), at::kFloat);
  std::set<std::uintmax_t> sizes;
  for (const auto& file : fs::directory_iterator(folder_.path("out")))
    sizes.insert(file.file_size());
  fs::remove_all(folder_.path("out"));
  for (const std::uintmax_t size : sizes) {
    const SmallDisk disk(size - 1);
    expect_refused<CheckError>(checkpoint, at::kFloat, ".out.partial", "cannot be written");
  }
}

TEST_F(ExportTest, APlaceThatCannotBeWrittenIsNamed) {
  const fs::path checkpoint = save(values_);
  folder_.write("file", "");
  for (const std::string& place : {folder_.path("file/out"), std::string("/proc/out")})
    expect_throws<CheckError>([&] { export_checkpoint(checkpoint, place, at::kFloat); },
                              {place, "cannot be created"});
}

// As much as its largest tensor, in fp32 and in its new type.
TEST_F(ExportTest, HoldsOneTensorAtATime) {
  install_memory_ledger();
  config_ = {{"layers", 2}, {"heads", 1}, {"channels", 128}, {"context", 8}};
  const fs::path checkpoint = save(
      random_values({.vocab_size = 100, .context = 8, .layers = 2, .heads = 1, .channels = 128}));
  const std::int64_t before = read_memory().total_live_bytes;
  reset_memory_peaks();
  export_checkpoint(checkpoint, folder_.path("out"), at::kBFloat16);
  EXPECT_LE(read_memory().peak_bytes - before, 128 * 512 * (4 + 2) + 64);
}

}  // namespace
}  // namespace ladder
