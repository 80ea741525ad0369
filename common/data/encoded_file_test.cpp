#include "common/data/encoded_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/data/batch_stream.hpp"
#include "common/data/dataset.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/testing/encoded_bytes.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rows_as_text.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/with_tokenizer.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint16_t> tokens_like(const std::string& text) {  // '.' ends a text
  std::vector<std::uint16_t> tokens;
  for (const char c : text)
    tokens.push_back(c == '.' ? ByteTokenizer::kEndOfText : static_cast<unsigned char>(c));
  return tokens;
}

// Of two conversations, what is in capitals is learned.
EncodedParts chat(const std::string& text = "aBC.dE.fGH.") {
  EncodedParts parts = {.rows = "chat", .starts = {0, 7}, .tokens = tokens_like(text)};
  bool was_learned = false;
  for (const char c : text) {
    was_learned = ('A' <= c && c <= 'Z') || (c == '.' && was_learned);
    parts.mask.push_back(was_learned);
  }
  return parts;
}

class EncodedFileTest : public ::testing::Test {
 protected:
  DataOptions options(const EncodedParts& parts, Rows rows, std::int64_t context) {
    return with_tokenizer(
        {.source = folder_.write("a.bin", encoded_bytes(parts)), .rows = rows, .context = context});
  }
  std::vector<std::string> rows_of(const DataOptions& options, bool are_targets) {
    const Dataset dataset = Dataset::open_training(options);
    std::vector<std::string> lines;
    for (std::int64_t k = 0; k < dataset.num_samples(); ++k) {
      const Microbatch one = dataset.read(std::vector<std::int64_t>{k});
      for (std::string& line : rows_as_text(are_targets ? one.targets : one.tokens))
        lines.push_back(std::move(line));
    }
    return lines;
  }
  void expect_damaged(const std::string& bytes, const std::string& problem) {
    expect_throws<CheckError>([&] { EncodedFile(folder_.write("bad.bin", bytes)); },
                              {"bad.bin", problem});
  }
  TempFolder folder_;
};

TEST_F(EncodedFileTest, AConversationsTargetsAreWhatTheMaskSays) {
  const DataOptions whole = options(chat(), Rows::kChat, 7);
  EXPECT_EQ(rows_of(whole, /*are_targets=*/false),
            (std::vector<std::string>{"aBC.dE_", "fGH____"}));
  EXPECT_EQ(rows_of(whole, /*are_targets=*/true), (std::vector<std::string>{"BC._E._", "GH.____"}));
  EXPECT_EQ(rows_of(options(chat(), Rows::kChat, 2), /*are_targets=*/true),
            (std::vector<std::string>{"BC", "GH"}));
  const Dataset dataset = Dataset::open_training(whole);
  EXPECT_THAT(dataset.description(), HasSubstr("2 conversations, 11 tokens (encoded "));
  EXPECT_EQ(dataset.text_of_targets(2).num_targets, 8);
  EXPECT_EQ(dataset.text_of_targets(2).num_bytes, 5);
}

// Two sources of the same tokens, cut into other conversations or with another mask, are not equal.
TEST_F(EncodedFileTest, WhatIsLearnedIsPartOfTheContent) {
  const auto hash = [&](const EncodedParts& parts) {
    return Dataset::open_training(options(parts, Rows::kChat, 7)).content_hash();
  };
  const std::string first = hash(chat());
  EncodedParts masked = chat(), cut = chat();
  masked.mask[5] = 0;
  cut.starts[1] = 4;
  EXPECT_EQ(hash(chat()), first);
  EXPECT_NE(hash(masked), first);
  EXPECT_NE(hash(cut), first);
}

TEST_F(EncodedFileTest, AConversationThatIsCutBeforeItsAnswerTeachesNothing) {
  const EncodedParts long_start = {
      .rows = "chat", .starts = {0}, .tokens = tokens_like("abcdE."), .mask = {0, 0, 0, 0, 1, 1}};
  expect_throws<CheckError>([&] { Dataset::open_training(options(long_start, Rows::kChat, 3)); },
                            {"--context 3 cuts", "conversation 0", "needs --context 4"});
}

TEST_F(EncodedFileTest, DocumentsAreRowsOrWindows) {
  const EncodedParts documents = {.starts = {0, 3}, .tokens = tokens_like("ab.cde.")};
  EXPECT_EQ(rows_of(options(documents, Rows::kDocuments, 4), /*are_targets=*/true),
            (std::vector<std::string>{"b.__", "de._"}));
  EXPECT_EQ(rows_of(options(documents, Rows::kWindows, 3), /*are_targets=*/false),
            (std::vector<std::string>{"ab.", "cde"}));
}

TEST_F(EncodedFileTest, PairsHaveAPromptAndTwoAnswers) {
  const EncodedParts pairs = {
      .rows = "pairs", .starts = {0, 2, 4, 7, 8, 10}, .tokens = tokens_like("pqA.BC.rD.E.")};
  const std::vector<std::string> targets = {"_A.__", "_BC._", "D.___", "E.___"};
  EXPECT_EQ(rows_of(options(pairs, Rows::kPairs, 5), /*are_targets=*/true), targets);
}

TEST_F(EncodedFileTest, OtherRowsThanItWasEncodedForAreRefused) {
  const auto expect = [&](const EncodedParts& parts, Rows rows, const char* way_out) {
    expect_throws<UsageError>([&] { Dataset::open_training(options(parts, rows, 4)); },
                              {"a.bin", way_out});
  };
  expect(chat(), Rows::kWindows, "--rows chat");
  expect({}, Rows::kChat, "--rows windows");
  expect({}, Rows::kPairs, "--rows documents");
  expect({.rows = "pairs", .starts = {0, 1, 2}, .tokens = tokens_like("abc")}, Rows::kChat, "dpo");
  expect_throws<UsageError>(
      [&] {
        Dataset::open_training({.source = folder_.write("a.jsonl", "{}"), .rows = Rows::kChat});
      },
      {"./ladder encode", "--chat"});
}

TEST_F(EncodedFileTest, BringsItsTokenizer) {
  const DataOptions data = options({}, Rows::kDocuments, 1);
  EXPECT_EQ(open_tokenizer(data)->vocab_size(), ByteTokenizer::kVocabSize);
  EXPECT_EQ(open_tokenizer(data)->text_of('a'), "a");
  EXPECT_EQ(tokenizer_path(data), std::filesystem::path());
  EXPECT_FALSE(has_unknown_tokens(data));
  DataOptions other = data;
  other.tokenizer = "bytes";
  expect_throws<UsageError>([&] { with_tokenizer(other); }, {"--tokenizer bytes", "leave it out"});
  other = data;
  other.validation_source = folder_.write("b.jsonl", "{\"text\": \"b\"}");
  expect_throws<CheckError>([&] { Dataset::open_validation(other); }, {"./ladder encode"});
  EncodedParts parts;
  parts.files["tokenizer.model"] = "another";
  other.validation_source = folder_.write("b.bin", encoded_bytes(parts));
  expect_throws<CheckError>([&] { Dataset::open_validation(other); },
                            {"b.bin", "was encoded with"});
}

TEST_F(EncodedFileTest, KnowsTheTokensOfItsSampleOnly) {
  EncodedParts parts;
  parts.sample = {{"text", "Hi"}, {"tokens", {7, 8}}};
  const auto tokenizer = open_tokenizer(options(parts, Rows::kDocuments, 1));
  EXPECT_EQ(tokenizer->encode("Hi").ids(), (std::vector<std::uint32_t>{7, 8}));
  expect_throws<CheckError>([&] { tokenizer->encode("Ho"); }, {"a.bin", "'Hi'", "--sample"});
}

TEST_F(EncodedFileTest, DamageIsRefused) {
  const std::string good = encoded_bytes(chat());
  EXPECT_NO_THROW(EncodedFile(folder_.write("good.bin", good)));
  expect_damaged(good + "x", "truncated or damaged");
  for (const std::size_t size :
       {std::size_t{20}, good.find('\n'), good.size() / 2, good.size() - 1})
    expect_damaged(good.substr(0, size), "");
  const auto changed = [&](const char* member, const nlohmann::ordered_json& value) {
    return encoded_bytes(chat(), {{member, value}});
  };
  expect_damaged(changed("ladder_tokens", 2), "version 2");
  expect_damaged(changed("rows", "words"), "\"rows\" is \"words\"");
  expect_damaged(changed("end", 258), "\"end\" is 258");
  expect_damaged(changed("padding", -1), "\"padding\"");
  expect_damaged(changed("token_bytes", 3), "ids of 3 bytes");
  expect_damaged(changed("token_bytes", 4), "truncated or damaged");
  expect_damaged(changed("num_tokens", std::int64_t{1} << 52), "promises");
  expect_damaged(changed("text_bytes", 255), "promises");
  expect_damaged(changed("files", {{"../tokenizer.json", 3}}), "../tokenizer.json");
  expect_damaged(changed("sample", {{"text", "Hi"}, {"tokens", {300}}}), "300");
  for (const std::vector<std::int64_t>& starts :
       {std::vector<std::int64_t>{}, {1, 7}, {0, 0}, {0, 7, 5}, {0, 11}, {0, -1}}) {
    EncodedParts parts = chat();
    parts.starts = starts;
    expect_damaged(encoded_bytes(parts), "ascending");
  }
  EncodedParts parts = chat();
  parts.mask[3] = 2;
  expect_damaged(encoded_bytes(parts), "mask");
  parts = {.rows = "pairs", .starts = {0, 1}, .tokens = tokens_like("abc")};
  expect_damaged(encoded_bytes(parts), "ascending");
}

}  // namespace
}  // namespace ladder
