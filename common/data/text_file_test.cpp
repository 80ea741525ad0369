#include "common/data/text_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

class TextFileTest : public ::testing::Test {
 protected:
  TokenizedText read(const std::string& lines) {
    return read_jsonl(folder_.write("a.jsonl", lines), tokenizer_);
  }
  void expect_refused(const std::string& lines, const std::string& place, const std::string& text) {
    EXPECT_THAT([&] { read(lines); },
                ThrowsMessage<CheckError>(AllOf(HasSubstr("a.jsonl" + place), HasSubstr(text),
                                                Not(HasSubstr("json.exception")))));
  }

  TempFolder folder_;
  ByteTokenizer tokenizer_;
};

TEST_F(TextFileTest, TxtIsOneDocumentOfAnyBytes) {
  using namespace std::string_literals;
  const TokenizedText text = read_txt(folder_.write("a.txt", "a\n\xff\0"s), tokenizer_);
  EXPECT_THAT(text.tokens.ids(), ElementsAre('a', '\n', 255, 0, 256));
  EXPECT_THAT(text.starts, ElementsAre(0));
  expect_throws<CheckError>([&] { read_txt(folder_.write("empty.txt", ""), tokenizer_); },
                            {"is empty"});
  EXPECT_THROW(read_txt(folder_.path("missing.txt"), tokenizer_), CheckError);
}

// Llama 3's, in short: a tokenizer that puts a token before each document.
class BeginningTokenizer : public ByteTokenizer {
 public:
  static constexpr std::uint32_t kBegin = 257;
  explicit BeginningTokenizer(std::uint32_t begin = kBegin) : begin_(begin) {}
  std::optional<std::uint32_t> begin_of_text() const override { return begin_; }
  void encode(std::string_view text, TokenList& tokens) override {
    for (const char letter : text) {
      if (letter == '<' || letter == '.') tokens.push_back(letter == '<' ? begin_ : kEndOfText);
      if (letter != '<' && letter != '.')
        ByteTokenizer::encode(std::string_view(&letter, 1), tokens);
    }
  }

 private:
  std::uint32_t begin_;
};

TEST_F(TextFileTest, ADocumentBeginsOnceAndEndsOnce) {
  const auto read_with = [&](BeginningTokenizer tokenizer, const std::string& text) {
    TokenizedText documents;
    append_document(text, tokenizer, documents);
    return documents.tokens.ids();
  };
  const BeginningTokenizer two;
  EXPECT_THAT(read_with(two, "ab"), ElementsAre(257, 'a', 'b', 256));
  EXPECT_THAT(read_with(two, ""), ElementsAre(257, 256));
  EXPECT_THAT(read_with(two, "<a."), ElementsAre(257, 'a', 256));
  EXPECT_THAT(read_with(two, "<<a.."), ElementsAre(257, 257, 'a', 256, 256));
  EXPECT_THAT(read_with(two, "a<"), ElementsAre(257, 'a', 257, 256));
  const BeginningTokenizer one(256);  // that begins and ends
  EXPECT_THAT(read_with(one, ""), ElementsAre(256, 256));
  EXPECT_THAT(read_with(one, "."), ElementsAre(256, 256));
  EXPECT_THAT(read_with(one, ".a."), ElementsAre(256, 'a', 256));
}

TEST_F(TextFileTest, WhatIsToBeContinuedBeginsAsADocument) {
  BeginningTokenizer tokenizer;
  for (const char* text : {"a", "<a"})
    EXPECT_THAT(start_of_document(text, tokenizer).ids(), ElementsAre(257, 'a'));
  EXPECT_THAT(start_of_document("a", tokenizer_).ids(), ElementsAre(256, 'a'));
}

TEST_F(TextFileTest, APointerOrUtf16IsNotTheText) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  expect_refused(pointer, "", "git lfs pull");
  for (const std::string& bytes : {pointer,
                                   std::string("\xff\xfe"
                                               "a\0",
                                               4),
                                   std::string("\xfe\xff\0a", 4)}) {
    EXPECT_THAT([&] { read_txt(folder_.write("a.txt", bytes), tokenizer_); },
                ThrowsMessage<CheckError>(
                    ::testing::AnyOf(HasSubstr("git lfs pull"), HasSubstr("iconv -f UTF-16"))));
  }
  EXPECT_NO_THROW(read_txt(folder_.write("a.txt", "About LFS: " + pointer), tokenizer_));
}

TEST_F(TextFileTest, JsonlJoinsTheFieldsPresentInOrder) {
  const TokenizedText text = read(
      "{\"answer\": \"C\", \"context\": \"A\", \"question\": \"B\", \"other\": [1, {\"answer\": "
      "2}]}\r\n"
      "\n  \t\n"
      "{\"question\": \"q\\n\", \"answer\": \"\\u00e9\"}\n"
      "{\"answer\": \"\"}\n"
      "{\"text\": \"T\"}");
  EXPECT_EQ(tokenizer_.decode(text.tokens.ids()), "A\nB\nCq\n\n\xc3\xa9T");
  EXPECT_THAT(text.starts, ElementsAre(0, 6, 12, 13));
  EXPECT_EQ(text.tokens[5], ByteTokenizer::kEndOfText);
  EXPECT_EQ(text.tokens.size(), 15);
}

TEST_F(TextFileTest, OtherMembersAreTold) {
  const TokenizedText text = read(
      "{\"text\": \"x\", \"id\": 1, \"label\": false}\n{\"question\": \"y\", \"url\": \"\", "
      "\"ID\": 2}");
  EXPECT_THAT(text.ignored, ElementsAre("ID", "id", "label"));
  std::string many;
  for (int i = 0; i < 500; ++i) many += concat("{\"text\": \"x\", \"key", i, "\": 1}\n");
  EXPECT_EQ(read(many).ignored.size(), 100u);
}

TEST_F(TextFileTest, JsonlRefusesWhatIsMalformedWithItsLine) {
  const std::string good = "{\"answer\": \"x\"}\n\n";
  expect_refused(good + "{\"answer\": \"x\"", ":3", "not valid JSON");
  expect_refused(good + good + "{\"answer\": \"\xff\"}\n", ":5", "not valid JSON");
  expect_refused(good + "{\"answer\": \"x\"} {}\n", ":3", "not valid JSON");
  expect_refused(good + "{\"answer\" \"x\"}", ":3", "not valid JSON: column 13: syntax error");
  expect_refused("[1]\n", ":1", "of type array");
  expect_refused(good + "{\"texts\": \"x\"}\n", ":3", "none of");
  expect_refused("{\"messages\": []}\n", ":1", "--rows chat");
  expect_refused("{\"answer\": 3}\n", ":1", "of type number");
  expect_refused("{\"context\": null, \"answer\": \"x\"}\n", ":1", "\"context\" must be a string");
  expect_refused("{\"answer\": \"x\", \"answer\": \"y\"}\n", ":1", "\"answer\" occurs twice");
  expect_refused(good + "{\"text\": \"x\", \"weight\": 0.5}\n", ":3: \"weight\"",
                 "does not read it");
  expect_refused("{\"text\": \"x\", \"loss_mask\": [0]}\n", ":1: \"loss_mask\"", "remove it");
  expect_refused("", "", "has no documents");
  expect_refused("\n \n", "", "has no documents");
}

}  // namespace
}  // namespace ladder
