#include "common/data/bpe/bpe_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/dataset.hpp"
#include "common/data/mapped_file.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/with_tokenizer.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;
using Ids = std::vector<std::uint32_t>;

std::string fixture() {
  return std::string(MappedFile(LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json").bytes());
}

class BpeFilesTest : public ::testing::Test {
 protected:
  using Change = std::function<void(json& file)>;
  std::string changed(const Change& change) {
    json file = json::parse(fixture());
    change(file);
    return file.dump();
  }
  std::string write(const Change& change) {
    return folder_.write("tokenizer.json", changed(change));
  }
  void expect_refused(const Change& change, const std::string& first,
                      const std::string& second = "") {
    const std::string path = write(change);
    expect_throws<CheckError>([&] { BpeTokenizer tokenizer(path); }, {path, first, second});
  }
  std::string name_after(const Change& change) { return BpeTokenizer(write(change)).name(); }

  TempFolder folder_;
};

TEST_F(BpeFilesTest, RefusesByNameWhatIsNotSupported) {
  const auto set = [](const char* pointer, const json& value) {
    return [=](json& file) { file[json::json_pointer(pointer)] = value; };
  };
  expect_refused(set("/normalizer", {{"type", "NFKC"}}), "normalizer NFKC is not supported");
  const json lowercase = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}};
  expect_refused(set("/normalizer", lowercase), "normalizer.normalizers[0]", "Lowercase");
  expect_refused(set("/truncation", {{"max_length", 5}}), "\"truncation\"", "max_length");
  expect_refused(set("/model/type", "Unigram"), "model: \"type\" is \"Unigram\"");
  expect_refused(set("/model/byte_fallback", true), "\"byte_fallback\" is true");
  expect_refused(set("/model/dropout", 0.1), "\"dropout\" is 0.1");
  expect_refused(set("/model/unk_token", "<unk>"), "\"unk_token\" is \"<unk>\"");
  expect_refused(set("/model/end_of_word_suffix", "</w>"), "\"end_of_word_suffix\"");
  expect_refused(set("/model/continuing_subword_prefix", "##"), "\"continuing_subword_prefix\"");
  expect_refused(set("/pre_tokenizer", nullptr), "pre_tokenizer is null");
  expect_refused(set("/pre_tokenizer/type", "Metaspace"), "Metaspace is not supported");
  expect_refused(set("/pre_tokenizer/pretokenizers/0/type", "Whitespace"), "pretokenizers[0]",
                 "Whitespace is not supported");
  expect_refused(set("/pre_tokenizer/pretokenizers/1/type", "Digits"), "pretokenizers[1]",
                 "only \"ByteLevel\"");
  expect_refused(set("/decoder/type", "WordPiece"), "decoder");
  expect_refused(set("/added_tokens/1/lstrip", true), "added token: \"lstrip\" is true");
  expect_refused(set("/added_tokens/1/single_word", true), "\"single_word\" is true");
  const auto split = [&](const json& stage) {
    return set("/pre_tokenizer/pretokenizers/0", stage);
  };
  const json regex = {{"type", "Split"}, {"pattern", {{"Regex", "a+"}}}, {"behavior", "Isolated"}};
  EXPECT_NO_THROW(BpeTokenizer{write(split(regex))});
  for (const auto& [name, value] : std::vector<std::pair<std::string, json>>{
           {"pattern", {{"String", "a"}}}, {"behavior", "MergedWithNext"}, {"invert", 1}}) {
    json other = regex;
    other[name] = value;
    expect_refused(split(other), "pretokenizers[0]");
  }
  json broken = regex;
  broken["pattern"]["Regex"] = "(a";
  expect_refused(split(broken), "(a is not a regular expression");
}

// A post-processor as Python's `tokenizers` writes it; "" stands for the text.
json template_of(const std::vector<std::string>& single) {
  const std::map<std::string, int> ids = {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"the", 302}};
  json file = {{"type", "TemplateProcessing"}, {"special_tokens", json::object()}};
  for (const std::string& token : single) {
    file["single"].push_back({{token.empty() ? "Sequence" : "SpecialToken",
                               {{"id", token.empty() ? "A" : token}, {"type_id", 0}}}});
    if (ids.contains(token)) file["special_tokens"][token] = {{"ids", {ids.at(token)}}};
  }
  return file;
}

TEST_F(BpeFilesTest, APostProcessorSaysWhatBeginsAndEndsAText) {
  const auto with = [](const json& post_processor) {
    return [=](json& file) { file["post_processor"] = post_processor; };
  };
  const auto open = [&](const json& post_processor) {
    return BpeTokenizer(write(with(post_processor)));
  };
  const auto sequence = [](const std::vector<json>& parts) -> json {
    return {{"type", "Sequence"}, {"processors", parts}};
  };
  const json offsets = {{"type", "ByteLevel"}}, text = template_of({""}),
             start = template_of({"<|im_start|>", ""}), end = template_of({"", "<|im_start|>"});
  const std::string plain = open(nullptr).name();
  for (const json& none : {offsets, text, sequence({}), sequence({offsets, text})}) {
    EXPECT_EQ(open(none).begin_of_text(), std::nullopt) << none;
    EXPECT_EQ(open(none).name(), plain) << none;
  }
  for (const json& one : {start, sequence({start}), sequence({offsets, sequence({text, start})})}) {
    EXPECT_EQ(open(one).begin_of_text(), 1u) << one;
    EXPECT_EQ(open(one).end_of_text(), 0u) << one;
    EXPECT_EQ(open(one).encode("the").ids(), Ids{302}) << one;
    EXPECT_EQ(open(one).name(), open(start).name()) << one;
  }
  EXPECT_NE(open(start).name(), plain);
  EXPECT_EQ(open(sequence({start, end})).end_of_text(), 1u);
  EXPECT_EQ(open(end).begin_of_text(), std::nullopt);
  const BpeTokenizer word = open(template_of({"the", ""}));  // which text has from then on
  EXPECT_EQ(word.begin_of_text(), 302u);
  EXPECT_EQ(word.text_of(302), "");

  expect_refused(with({{"type", "BertProcessing"}}), "BertProcessing is not supported");
  expect_refused(with(sequence({start, start})), "adds both \"<|im_start|>\" and");
  expect_refused(with(template_of({"<|im_start|>"})), "lacks the text");
  expect_refused(with(template_of({"", ""})), "the text twice");
  expect_refused(with(template_of({"<s>", ""})), "adds \"<s>\", which is not a token");
  json other = start;
  other["special_tokens"]["<|im_start|>"]["ids"] = {1, 1};
  expect_refused(with(other), "\"ids\" is [1,1]");
  other = text;
  other["single"][0]["Sequence"]["id"] = "B";
  expect_refused(with(other), "\"id\" is \"B\"");
}

TEST_F(BpeFilesTest, RefusesWhatIsDamaged) {
  const auto vocabulary = [](const char* token, const json& id) {
    return [=](json& file) { file["model"]["vocab"][token] = id; };
  };
  expect_refused(vocabulary("cat", 341), "has 341 tokens, but none with the id 340");
  expect_refused(vocabulary("cat", 7), "have the same id 7");
  for (const json& id : {json(-1), json(1.5), json("7"), json(1LL << 31), json(nullptr)})
    expect_refused(vocabulary("cat", id), "token \"cat\" has the id " + id.dump());
  expect_refused([](json& file) { file["model"].erase("vocab"); }, "model: \"vocab\" is missing");
  expect_refused([](json& file) { file["model"]["vocab"] = 3; }, "not an object");
  expect_refused(
      [](json& file) {
        file["model"]["vocab"].erase("<|im_end|>");
        file["added_tokens"].erase(2);
      },
      "none with the id 2");
  expect_refused([](json& file) { file["added_tokens"][1]["id"] = 2; },
                 "\"<|im_start|>\" is token 1", "added token 2");
  expect_refused([](json& file) { file["added_tokens"].push_back(file["added_tokens"][1]); },
                 "appears twice");
  expect_refused([](json& file) { file["added_tokens"][1]["content"] = ""; }, "is empty");
  expect_refused([](json& file) { file["added_tokens"] = 1; }, "\"added_tokens\" is not a list");
  const auto merge = [](const json& value) {
    return [=](json& file) { file["model"]["merges"].push_back(value); };
  };
  expect_refused(merge("a"), "the merge \"a\" is not two tokens");
  expect_refused(merge("a b c"), "is not two tokens");
  expect_refused(merge({"a", 3}), "neither");
  expect_refused(merge("x y"), "no token \"xy\"");
  expect_refused([](json& file) { file["model"]["merges"][0] = "q <|im_end|>"; }, "no token");
  expect_refused([](json& file) { file = json::array(); }, "not a JSON object");
}

TEST_F(BpeFilesTest, RefusesAFileThatIsCutOffAnywhere) {
  const std::string whole = fixture();
  for (std::size_t size = 0; size + 2 < whole.size(); size += 23) {
    const std::string path = folder_.write("cut.json", whole.substr(0, size));
    EXPECT_THROW(BpeTokenizer{path}, CheckError) << size << " bytes";
  }
}

TEST_F(BpeFilesTest, RefusesDuplicatesAndDeepNesting) {
  const auto refused = [&](const std::string& text, const std::string& message) {
    const std::string path = folder_.write("tokenizer.json", text);
    expect_throws<CheckError>([&] { BpeTokenizer tokenizer(path); }, {path, message});
  };
  refused("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}", "the key \"a\" occurs twice");
  refused("{\"a\":" + std::string(100'000, '['), "nests deeper than 100 levels");
  refused("", "not valid JSON");
}

TEST_F(BpeFilesTest, ReadsMergesAsPairsToo) {
  const auto as = [](bool are_pairs) {
    return [=](json& file) {
      for (json& merge : file["model"]["merges"]) {
        if (!merge.is_string())
          merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        const auto text = merge.get<std::string>();
        const std::size_t space = text.find(' ');
        if (are_pairs) merge = json{text.substr(0, space), text.substr(space + 1)};
      }
    };
  };
  EXPECT_EQ(name_after(as(true)), name_after(as(false)));
}

TEST_F(BpeFilesTest, TheNameChangesWithAllThatDecidesAboutIds) {
  const std::string name = name_after([](json&) {});
  EXPECT_THAT(name, ::testing::MatchesRegex("bpe [0-9a-f]{32}"));
  EXPECT_EQ(name, name_after([](json& file) { file["version"] = "2"; }));
  EXPECT_NE(name, name_after([](json& file) {
              std::swap(file["model"]["merges"][0], file["model"]["merges"][1]);
            }));
  EXPECT_NE(name, name_after([](json& file) {
              std::swap(file["model"]["vocab"]["a"], file["model"]["vocab"]["b"]);
            }));
  EXPECT_NE(name, name_after([](json& file) { file["model"]["ignore_merges"] = true; }));
  EXPECT_NE(name, name_after([](json& file) { file["added_tokens"][1]["special"] = false; }));
  EXPECT_NE(name, name_after([](json& file) {
              file["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
            }));
  const auto normalized = [](const std::vector<json>& normalizers) {
    return [=](json& file) {
      file["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    };
  };
  EXPECT_EQ(name, name_after(normalized({})));
  EXPECT_NE(name, name_after(normalized({{{"type", "NFC"}}})));
  std::set<std::string> names;
  for (const char* behavior : {"Isolated", "Removed"}) {
    for (const bool is_inverted : {false, true})
      names.insert(name_after([&](json& file) {
        file["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Split"},
                                                     {"pattern", {{"Regex", "a"}}},
                                                     {"behavior", behavior},
                                                     {"invert", is_inverted}};
      }));
  }
  EXPECT_EQ(names.size(), 3u);  // of what is isolated, nothing is removed either way
}

TEST_F(BpeFilesTest, TakesEndOfTextAndPaddingFromTheConfig) {
  const auto without_end_of_text = [](json& file) {
    file["added_tokens"][0]["content"] = "</s>";
    file["model"]["vocab"].erase("<|endoftext|>");
    file["model"]["vocab"]["</s>"] = 0;
  };
  const std::string path = write(without_end_of_text);
  const auto open = [&](const std::string& config) {
    folder_.write("tokenizer_config.json", config);
    return BpeTokenizer(path);
  };
  expect_refused(without_end_of_text, "no token <|endoftext|>", "no eos_token");
  EXPECT_EQ(open("{\"eos_token\": \"</s>\"}").end_of_text(), 0u);
  EXPECT_EQ(open("{\"eos_token\": {\"content\": \"</s>\"}}").padding(), 0u);
  EXPECT_EQ(open("{\"eos_token\": \"</s>\", \"pad_token\": \"<|im_end|>\"}").padding(), 2u);
  expect_throws<CheckError>([&] { open("{\"eos_token\": \"<eos>\"}"); },
                            {"\"<eos>\", which is not a token of"});
  expect_throws<CheckError>([&] { open("{\"eos_token\": 3}"); }, {"eos_token"});
}

// As in an export, which names it.
TEST_F(BpeFilesTest, TheEndOfTextIsFoundInTextEvenIfItIsOnlyInTheVocabulary) {
  const std::string path = write([](json& file) { file["added_tokens"].erase(0); });
  BpeTokenizer tokenizer(path);
  EXPECT_EQ(tokenizer.encode("the cat<|endoftext|>the").ids(), (Ids{302, 271, 0, 302}));
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(tokenizer.name(), BpeTokenizer(path).name());
}

// A folder whose tokenizer.json has <|im_start|> only in its vocabulary.
class BesideTest : public BpeFilesTest {
 protected:
  BesideTest() {
    write([](json& file) {
      file["added_tokens"].erase(2);
      file["added_tokens"].erase(1);
    });
  }
  Ids ids(const std::string& text) {
    return BpeTokenizer(folder_.path("tokenizer.json")).encode(text).ids();
  }
  void refused(const std::string& name, const json& contents, const std::string& reason) {
    folder_.write(name, contents.dump());
    expect_throws<CheckError>([&] { ids(""); }, {name + ": ", reason});
    fs::remove(folder_.path(name));
  }
};

TEST_F(BesideTest, AddedTokensAreReadWhereverTheyAre) {
  EXPECT_GT(ids("<|im_start|>").size(), 1u);  // spelled
  const json decoder = {{"1", {{"content", "<|im_start|>"}, {"special", true}}},
                        {"340", {{"content", "<new>"}, {"special", true}}}};
  for (const auto& [name, contents] : std::vector<std::pair<std::string, json>>{
           {"tokenizer_config.json", {{"added_tokens_decoder", decoder}}},
           {"added_tokens.json", {{"<|im_start|>", 1}, {"<new>", 340}}}}) {
    folder_.write(name, contents.dump());
    EXPECT_EQ(ids("<|im_start|><new><|im_start|>"), (Ids{1, 340, 1})) << name;
    fs::remove(folder_.path(name));
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    for (const json& contents :
         std::vector<json>{{{"bos_token", "<|im_start|>"}},
                           {{"bos_token", {{"content", "<|im_start|>"}}}},
                           {{"additional_special_tokens", {"<|im_start|>"}}},
                           {{"extra_special_tokens", {{"start", "<|im_start|>"}}}},
                           {{"my_token", "<|im_start|>"}}}) {
      folder_.write(name, contents.dump());
      EXPECT_EQ(ids("<|im_start|>"), Ids{1}) << contents;
    }
    fs::remove(folder_.path(name));
  }
}

TEST_F(BesideTest, ContradictionsAreRefused) {
  const auto decoder = [](const char* id, const json& token) -> json {
    return {{"added_tokens_decoder", {{id, token}}}};
  };
  const auto named = [](const char* name) -> json { return {{"content", name}}; };
  const char* const config = "tokenizer_config.json";
  refused(config, decoder("7", named("<|im_start|>")), "is added token 7, but in");
  refused(config, decoder("7", named("<|endoftext|>")), "it is token 0");
  refused("added_tokens.json", {{"<|im_start|>", 7}}, "is added token 7, but in");
  refused("added_tokens.json", {{"<new>", "7"}}, "token \"<new>\" has the id \"7\"");
  refused("added_tokens.json", {{"", 340}}, "is empty");
  for (const char* id : {"x", "-1", "3.0", "", "340 ", "99999999999"})
    refused(config, decoder(id, named("<new>")), concat("has the id \"", id, "\""));
  json stripping = named("<new>");
  stripping["lstrip"] = true;
  refused(config, decoder("340", stripping), "\"lstrip\" is true");
  refused(config, decoder("340", "<new>"), "added_tokens_decoder.340 is \"<new>\"");
  refused(config, {{"added_tokens_decoder", {"<new>"}}}, "is not an object");
  stripping["content"] = "<|im_start|>";
  refused(config, {{"bos_token", stripping}}, "<|im_start|>: \"lstrip\" is true");
  refused(config, {{"bos_token", "<new>"}}, "names \"<new>\", which is not a token");
  refused(config, {{"additional_special_tokens", {"<new>"}}}, "names \"<new>\"");
  refused(config, {{"split_special_tokens", true}}, "\"split_special_tokens\" is true");
  folder_.write("added_tokens.json", R"({"<new>": 341})");
  expect_throws<CheckError>([&] { ids(""); }, {"none with the id 340"});
  folder_.write("added_tokens.json", R"({"<new>": 3})");
  expect_throws<CheckError>([&] { ids(""); }, {"have the same id 3"});
}

class VocabAndMergesTest : public BpeFilesTest {
 protected:
  void SetUp() override {
    folder_.write("vocab.json",
                  R"({"h": 0, "i": 1, "Ġ": 2, "hi": 3, "Ġhi": 4, "<|endoftext|>": 5})");
    folder_.write("merges.txt", "#version: 0.2\nh i\nĠ hi\n");
  }
  std::string folder() { return folder_.path().string(); }
};

TEST_F(VocabAndMergesTest, AreReadAsGpt2s) {
  BpeTokenizer tokenizer(folder());
  EXPECT_EQ(tokenizer.encode("hi hi<|endoftext|>ih").ids(), (Ids{3, 4, 5, 1, 0}));
  EXPECT_EQ(tokenizer.end_of_text(), 5u);
}

TEST_F(VocabAndMergesTest, RefuseABadLineAndAnotherTokenizersFiles) {
  const auto refused = [&](const std::string& text) {
    expect_throws<CheckError>([&] { BpeTokenizer tokenizer(folder()); }, {text});
  };
  folder_.write("merges.txt", "h i\nh\n");
  refused("merges.txt:2: the merge \"h\"");
  folder_.write("merges.txt", "h i\n");
  folder_.write("tokenizer_config.json", "{\"tokenizer_class\": \"RobertaTokenizer\"}");
  refused("\"tokenizer_class\" is \"RobertaTokenizer\"");
  for (const std::string name : {"add_prefix_space", "add_bos_token", "add_eos_token"}) {
    folder_.write("tokenizer_config.json", json{{name, true}}.dump());
    refused("\"" + name + "\" is true");
  }
}

TEST_F(BpeFilesTest, AFolderWithoutATokenizerIsRefused) {
  expect_throws<CheckError>([&] { BpeTokenizer tokenizer(folder_.path().string()); },
                            {"neither tokenizer.json nor vocab.json"});
  expect_throws<CheckError>([&] { BpeTokenizer{folder_.path("missing")}; },
                            {"missing: no such file or folder"});
  const auto expect_hint = [](const char* path, const char* name) {
    expect_throws<CheckError>([&] { BpeTokenizer{path}; }, {concat("hf download ", name, " --")});
  };
  expect_hint("owner/name", "owner/name");
  expect_hint("no owner/a name", "OWNER/NAME");
}

TEST_F(BpeFilesTest, AutoIsThePretrainedModelsTokenizerOrBytes) {
  const std::string folder = folder_.path().string();
  const auto name = [](const DataOptions& options) {
    return open_tokenizer(with_tokenizer(options))->name();
  };
  EXPECT_EQ(name({}), "bytes");
  EXPECT_EQ(name({.pretrained = folder}), "bytes");
  const std::string path = write([](json&) {});
  EXPECT_EQ(name({.pretrained = folder}).substr(0, 4), "bpe ");
  EXPECT_EQ(name({.tokenizer = "bytes", .pretrained = folder}), "bytes");
  EXPECT_EQ(name({.tokenizer = path}), name({.pretrained = folder}));
  EXPECT_EQ(vocab_size_of(with_tokenizer({.pretrained = folder})), 340);
  EXPECT_EQ(vocab_size_of(with_tokenizer({.pretrained = folder, .vocab_size = 1000})), 1000);
  EXPECT_THROW(vocab_size_of(with_tokenizer({.pretrained = folder, .vocab_size = 339})),
               UsageError);
}

TEST_F(BpeFilesTest, AutoIsWhatAnotherRunKeeps) {
  const DataOptions by_file = {.tokenizer = write([](json&) {})};
  const fs::path run = folder_.path("run"), checkpoint = run / "checkpoints/step_000001";
  fs::create_directories(checkpoint);
  folder_.write("run/checkpoints/step_000001/state.json", "{}");
  for (const fs::path& model : {run, checkpoint})
    EXPECT_EQ(open_tokenizer(with_tokenizer({.pretrained = model}))->name(), "bytes");
  fs::create_directory(run / "tokenizer");
  fs::rename(by_file.tokenizer, run / "tokenizer/tokenizer.json");
  for (const fs::path& model : {run, checkpoint})
    EXPECT_EQ(open_tokenizer(with_tokenizer({.pretrained = model}))->vocab_size(), 340);
}

TEST_F(BpeFilesTest, FilesAreReadOnceAndBeforeATokenizerIsOpened) {
  DataOptions options = {.tokenizer = write([](json&) {})};
  expect_throws<CheckError>([&] { open_tokenizer(options); }, {options.tokenizer, "not been read"});
  options = with_tokenizer(options);
  const std::string name = open_tokenizer(options)->name();
  fs::remove(options.tokenizer);
  EXPECT_EQ(open_tokenizer(options)->name(), name);
  EXPECT_EQ(tokenizer_path(options), options.tokenizer);
}

// Text, the corpus and token ids are all of the tokenizer that is named.
TEST_F(BpeFilesTest, DataOfEveryKindHaveItsTokens) {
  DataOptions text = with_tokenizer({.source = folder_.write("a.txt", "the cat"),
                                     .tokenizer = write([](json&) {}),
                                     .context = 2});
  const std::string name = open_tokenizer(text)->name();
  const Dataset windows = Dataset::open_training(text);
  EXPECT_EQ(windows.num_tokens(), 3);
  EXPECT_EQ(windows.vocab_size(), 340);
  EXPECT_EQ(windows.tokenizer(), name);
  EXPECT_EQ(windows.text_of_targets(1).num_bytes, 4);            // " cat" and the end of text
  text.source = folder_.write("b.txt", "the cat<|endoftext|>");  // which ends only once
  EXPECT_EQ(Dataset::open_training(text).num_tokens(), 3);
  text.source = folder_.write("a.bin", bytes_of<std::uint16_t>({302, 271, 0}));
  EXPECT_EQ(Dataset::open_training(text).tokenizer(), name);
  EXPECT_EQ(Dataset::open_training(text).text_of_targets(1).num_bytes, 4);
  text.source = folder_.write("b.bin", "\xff\xff");
  EXPECT_THROW(Dataset::open_training(text), CheckError);
  text.source = "corpus";
  text.rows = Rows::kDocuments;
  text.context = 300;
  EXPECT_LT(Dataset::open_training(text).num_tokens(), Dataset::open_training({}).num_tokens());
}

TEST_F(BpeFilesTest, WhatIsNotSupportedCanBeEncodedByPython) {
  const std::string path = write([](json& file) { file["normalizer"] = {{"type", "NFKC"}}; });
  expect_throws<CheckError>([&] { with_tokenizer({.tokenizer = path}); },
                            {"NFKC is not supported", "./ladder encode"});
}

}  // namespace
}  // namespace ladder
