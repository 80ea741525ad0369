#include "common/data/conversations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/data/batch_stream.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/dataset.hpp"
#include "common/data/mapped_file.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rows_as_text.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/with_tokenizer.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

const std::string kTokenizer = LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json";

constexpr const char* kChat =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "\"the cat\"}, {\"role\": \"assistant\", \"content\": \"sat\"}, {\"role\": \"user\", "
    "\"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"\"}]}\n";

class ConversationsTest : public ::testing::Test {
 protected:
  DataOptions options(const std::string& lines, std::int64_t context) {
    return with_tokenizer({.source = folder_.write("a.jsonl", lines),
                           .tokenizer = kTokenizer,
                           .rows = Rows::kChat,
                           .context = context});
  }
  std::string text_of(const at::Tensor& row) {
    return rows_as_text(row, tokenizer_, {{0, '$'}, {1, '<'}, {2, '>'}}).at(0);
  }
  void expect_refused(const std::string& lines, const std::string& place, const std::string& text) {
    expect_throws<CheckError>(
        [&] { read_jsonl_conversations(folder_.write("a.jsonl", lines), tokenizer_); },
        {"a.jsonl" + place, text});
  }

  TempFolder folder_;
  BpeTokenizer tokenizer_{kTokenizer};
};

TEST_F(ConversationsTest, OnlyTheAssistantsWordsAreTargets) {
  const Dataset dataset = Dataset::open_training(options(kChat, 100));
  EXPECT_EQ(dataset.num_samples(), 1);
  const Microbatch chat = dataset.read(std::vector<std::int64_t>{0});
  const std::string tokens = text_of(chat.tokens);
  EXPECT_EQ(tokens.substr(0, tokens.find('$')),
            "<system\nS>\n<user\nthe cat>\n<assistant\nsat>\n<user\nx>\n<assistant\n>");
  std::string targets = text_of(chat.targets);
  std::erase(targets, '_');
  EXPECT_EQ(targets, "sat>>");
  EXPECT_EQ(chat.num_targets, 2 + 1 + 1);  // "s", "at"
  EXPECT_EQ(chat.num_documents, 1);
  const TargetText text = dataset.text_of_targets(1);
  EXPECT_EQ(text.num_targets, 4);
  EXPECT_EQ(text.num_bytes, 3);
  EXPECT_THAT(dataset.description(), HasSubstr("1 conversation, "));
}

TEST_F(ConversationsTest, TheDefaultSystemMessageComesFirst) {
  const Dataset dataset = Dataset::open_training(
      options("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", 100));
  const std::string tokens = text_of(dataset.read(std::vector<std::int64_t>{0}).tokens);
  EXPECT_THAT(tokens, HasSubstr("<system\nYou are a helpful AI assistant named SmolLM, trained by "
                                "Hugging Face>\n<assistant\na>"));
}

// What is learned does not depend on how text is cut, nor on what the vocabulary lacks.
TEST_F(ConversationsTest, TheHeaderIsLearnedByNoTokenizer) {
  const auto targets_after = [&](const std::function<void(nlohmann::json & file)>& change) {
    auto file = nlohmann::json::parse(MappedFile(kTokenizer).bytes());
    change(file);
    DataOptions chat = options(kChat, 100);
    chat.tokenizer = folder_.write("changed.json", file.dump());
    BpeTokenizer tokenizer(chat.tokenizer);
    const Dataset dataset = Dataset::open_training(with_tokenizer(chat));
    std::string text = rows_as_text(dataset.read(std::vector<std::int64_t>{0}).targets, tokenizer,
                                    {{0, '$'}, {1, '<'}, {2, '>'}})
                           .at(0);
    std::erase(text, '_');
    return text;
  };
  const nlohmann::json plain = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  EXPECT_EQ(targets_after([&](auto& file) { file["pre_tokenizer"] = plain; }), "sat>>");
  EXPECT_EQ(targets_after([](auto& file) {
              file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
            }),
            "sat>>");
  EXPECT_EQ(targets_after([](auto& file) {  // no newline
              file["model"]["vocab"]["no newline"] = file["model"]["vocab"]["Ċ"];
              file["model"]["vocab"].erase("Ċ");
            }),
            "sat>>");
}

TEST_F(ConversationsTest, AWeightOf0KeepsAnAnswerOutOfTheLoss) {
  const auto answer = [](const std::string& weight) {
    return R"({"role": "assistant", "content": "sat")" + weight + "}";
  };
  const auto targets = [&](const std::string& first, const std::string& second) {
    const Dataset dataset = Dataset::open_training(options(
        concat(R"({"messages": [{"role": "user", "content": "S", "weight": 0}, )", answer(first),
               R"(, {"role": "user", "content": "x"}, )", answer(second), "]}"),
        100));
    const Microbatch row = dataset.read(std::vector<std::int64_t>{0});
    EXPECT_THAT(text_of(row.tokens), HasSubstr("<assistant\nsat>\n<user\nx>\n<assistant\nsat>"));
    std::string text = text_of(row.targets);
    const std::size_t begin = text.find_first_not_of('_');
    return text.substr(begin, text.find_last_not_of('_') + 1 - begin);
  };
  const std::string learned = targets("", "");
  EXPECT_THAT(learned, ::testing::MatchesRegex("sat>_+sat>"));
  EXPECT_EQ(targets(R"(, "weight": 1)", R"(, "weight": null)"), learned);
  EXPECT_EQ(targets(R"(, "weight": 0)", R"(, "weight": 1.0)"), "sat>");
  EXPECT_EQ(targets(R"(, "weight": 1)", R"(, "weight": 0)"), "sat>");
}

TEST_F(ConversationsTest, RefusesWhatOtherProgramsLearnBy) {
  const auto line = [](const std::string& of_line, const std::string& of_user,
                       const std::string& of_answer) {
    return concat("{", of_line, R"("messages": [{"role": "user", "content": "x")", of_user,
                  R"(}, {"role": "assistant", "content": "y")", of_answer, "}]}");
  };
  for (const char* weight : {"0.5", "2", "-1", "true", "\"0\"", "[]"})
    expect_refused(line("", "", concat(", \"weight\": ", weight)), ":1: messages[1]: \"weight\"",
                   "it must be 1, or 0");
  expect_refused(line("", "", ", \"weight\": 0"), ":1", "with a weight of 1");
  expect_refused(line("", ", \"weight\": 1", ""), ":1: messages[0]", "\"weight\" is 1");
  for (const char* member : {"train", "training", "loss"})
    expect_refused(line("", "", concat(", \"", member, "\": false")),
                   concat(":1: messages[1]: \"", member, "\""), "\"weight\": 0");
  for (const char* member : {"name", "reasoning_content", "thinking", "tool_call_id"})
    expect_refused(line("", concat(", \"", member, "\": \"z\""), ""), ":1: messages[0]", member);
  for (const char* member : {"tool_calls", "images", "train_detail"})
    expect_refused(line("", "", concat(", \"", member, "\": [{}]")), ":1: messages[1]", member);
  for (const char* member :
       {"\"weight\": 0, ", "\"train\": false, ", "\"system\": \"S\", ", "\"tools\": [{}], ",
        "\"images\": [\"a\"], ", "\"label\": false, ", "\"loss\": 0.5, ", "\"weights\": [0, 1], ",
        "\"rejected_messages\": [{}], ", "\"enable_thinking\": true, ",
        "\"enable_thinking\": false, ", "\"exampleWeight\": 3, ", "\"completion_mask\": [0], "})
    expect_refused(line(member, "", ""), ":1: " + std::string(member).substr(0, 4),
                   "would change what is learned");
  for (const char* member :
       {"\"loss_scale\": 0", "\"trainable\": false", "\"mask\": true", "\"mask\": 1",
        "\"lossMask\": 0", "\"channel\": \"analysis\"", "\"toolCalls\": [{}]"})
    expect_refused(line("", "", concat(", ", member)),
                   ":1: messages[1]: " + std::string(member).substr(0, 4),
                   "would change what is learned");
  const Dataset harmless = Dataset::open_training(
      options(line("\"id\": 7, \"source\": {\"a\": [1]}, \"tools\": [], \"weight\": 1, ",
                   ", \"tool_calls\": null, \"timestamp\": \"now\", \"weighted\": 2",
                   ", \"refusal\": null, \"train\": true, \"thinking\": \"\", \"lossMask\": 1"),
              100));
  EXPECT_THAT(harmless.ignored_members(), ::testing::ElementsAre("id", "messages[].timestamp",
                                                                 "messages[].weighted", "source"));
}

TEST_F(ConversationsTest, ARowKeepsTheBeginning) {
  const Dataset whole = Dataset::open_training(options(kChat, 100));
  const std::int64_t num_tokens = whole.num_tokens();
  const Microbatch all = whole.read(std::vector<std::int64_t>{0});
  std::int64_t least = 1;  // the context that shows the first target
  while (all.targets[0][least - 1].item<std::int64_t>() == kIgnoredTarget) ++least;
  for (std::int64_t context = 1; context < least; ++context) {
    expect_throws<CheckError>(
        [&] { Dataset::open_training(options("\n" + std::string(kChat), context)); },
        {concat("--context ", context, " cuts"), concat("a.jsonl:2 needs --context ", least)});
  }
  for (std::int64_t context = least; context <= num_tokens; ++context) {
    const Dataset cut = Dataset::open_training(options(kChat, context));
    const Microbatch row = cut.read(std::vector<std::int64_t>{0});
    const std::int64_t shown = std::min(context, num_tokens - 1);
    EXPECT_TRUE(row.tokens.narrow(1, 0, shown).equal(all.tokens.narrow(1, 0, shown)));
    EXPECT_TRUE(row.targets.narrow(1, 0, shown).equal(all.targets.narrow(1, 0, shown)));
    EXPECT_EQ(row.num_targets, row.targets.ne(kIgnoredTarget).sum().item<std::int64_t>());
    EXPECT_THAT(cut.description(),
                HasSubstr(context + 1 < num_tokens ? "1 conversations cut" : "0 conv"));
  }
}

TEST_F(ConversationsTest, ATokenWithAByteOfTheAnswerIsATarget) {
  TokenList tokens(tokenizer_.vocab_size());
  std::vector<std::int64_t> ends;
  ChatFormat(tokenizer_)
      .append({{"system", ""}, {"assistant", "\n\n a"}}, tokenizer_, tokens, ends);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(tokens[ends[1] - 1], 2u);
  std::string targets;
  for (std::int64_t i = ends[0]; i < ends[1]; ++i) targets += tokenizer_.text_of(tokens[i]);
  EXPECT_THAT(targets, ::testing::EndsWith("\n\n a"));
}

TEST_F(ConversationsTest, RefusesALineWithItsNumber) {
  const std::string good = std::string(kChat) + "\n";
  const auto message = [](const std::string& role, const std::string& content) {
    return concat("{\"messages\": [{\"role\": ", role, ", \"content\": ", content, "}]}");
  };
  expect_refused(good + "{\"text\": 1}", ":3", "has no \"messages\"");
  expect_refused(good + "{\"messages\": []}", ":3", "has no messages");
  expect_refused("{\"messages\": {}}", ":1", "must be a list, but is of type object");
  expect_refused("{\"messages\": [3]}", ":1: messages[0] must be an object", "number");
  expect_refused(message("\"tool\"", "\"x\""), ":1: messages[0]", "the role is \"tool\"");
  expect_refused(message("3", "\"x\""), ":1: messages[0]", "\"role\" must be a string");
  expect_refused(message("\"assistant\"", "null"), ":1: messages[0]",
                 "\"content\" must be a string");
  expect_refused("{\"messages\": [{\"role\": \"assistant\"}]}", ":1: messages[0]",
                 "no \"content\"");
  expect_refused(message("\"user\"", "\"x\""), ":1", "no message is the assistant's");
  expect_refused("\n", "", "has no conversations");
}

TEST_F(ConversationsTest, NeedAJsonlFileAndATokenizerWithChatTokens) {
  DataOptions bytes = options(kChat, 10);
  bytes.tokenizer = "bytes";
  bytes.tokenizer_files = nullptr;
  expect_throws<CheckError>([&] { Dataset::open_training(bytes); },
                            {"<|im_start|>", "--tokenizer"});
  DataOptions corpus = options(kChat, 10);
  corpus.source = "corpus";
  expect_throws<UsageError>([&] { Dataset::open_training(corpus); }, {"--rows chat", ".jsonl"});
}

TEST_F(ConversationsTest, AnotherTemplateIsRefused) {
  DataOptions chat = options(kChat, 100);
  chat.tokenizer = folder_.write("tokenizer.json", std::string(MappedFile(kTokenizer).bytes()));
  const auto config = [&](const std::string& text) {
    folder_.write("tokenizer_config.json", text);
    chat = with_tokenizer(chat);
  };
  config(
      R"({"chat_template": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"})");
  EXPECT_NO_THROW(Dataset::open_training(chat));
  config("{\"chat_template\": \"{{ bos_token }}{% for m in messages %}\"}");
  expect_throws<CheckError>([&] { Dataset::open_training(chat); },
                            {"tokenizer_config.json", "begins with {{ bos_token }}"});
  config("{}");
  EXPECT_NO_THROW(Dataset::open_training(chat));
  folder_.write("chat_template.jinja", "other");
  expect_throws<CheckError>([&] { Dataset::open_training(chat); }, {"chat_template.jinja"});
}

// Text, pairs and corpus go through the same tokenizer.
TEST_F(ConversationsTest, OtherRowsUseTheTokenizerToo) {
  DataOptions text = options("the cat", 2);
  text.rows = Rows::kWindows;
  text.source = folder_.write("a.txt", "the cat");
  const Dataset windows = Dataset::open_training(text);
  EXPECT_EQ(windows.num_tokens(), 3);
  EXPECT_EQ(windows.vocab_size(), 340);
  EXPECT_EQ(windows.tokenizer(), tokenizer_.name());
  EXPECT_EQ(windows.text_of_targets(1).num_bytes, 4);            // " cat" and the end of text
  text.source = folder_.write("b.txt", "the cat<|endoftext|>");  // which ends only once
  EXPECT_EQ(Dataset::open_training(text).num_tokens(), 3);
  text.rows = Rows::kDocuments;
  text.context = 300;
  text.source = "corpus";
  const Dataset corpus = Dataset::open_training(text);
  const Microbatch document = corpus.read(std::vector<std::int64_t>{0});
  EXPECT_EQ(text_of(document.tokens).substr(0, 12), "CREATE TABLE");
  EXPECT_LT(corpus.num_tokens(), Dataset::open_training({}).num_tokens());
}

TEST_F(ConversationsTest, ATokenFileMayBelongToATokenizer) {
  DataOptions file;
  file.source = folder_.write("a.bin", std::string("\x2e\x01\x0f\x01\x00\x00", 6));  // 302, 271, 0
  file.tokenizer = kTokenizer;
  file.context = 2;
  file = with_tokenizer(file);
  const Dataset dataset = Dataset::open_training(file);
  EXPECT_EQ(dataset.tokenizer(), tokenizer_.name());
  EXPECT_EQ(dataset.text_of_targets(1).num_bytes, 4);
  file.source = folder_.write("b.bin", "\xff\xff");
  EXPECT_THROW(Dataset::open_training(file), CheckError);
}

}  // namespace
}  // namespace ladder
