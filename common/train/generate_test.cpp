#include "common/train/generate.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/testing/encoded_bytes.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

const std::string kTokenizer = LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json";

// A model that writes these tokens, one after the other, and keeps what it was shown first.
class Typist {
 public:
  Typist(std::vector<std::int64_t> tokens, std::int64_t vocab_size)
      : tokens_(std::move(tokens)), vocab_size_(vocab_size) {}
  at::Tensor forward(const at::Tensor& tokens) {
    if (shown_.empty()) {
      for (std::int64_t i = 0; i < tokens.numel(); ++i)
        shown_.push_back(static_cast<std::uint32_t>(tokens[0][i].item<std::int64_t>()));
    }
    at::Tensor logits = at::full({1, 1, vocab_size_}, 0.0);
    logits[0][0][tokens_.at(next_++)] = 1000.0;
    return logits;
  }
  const std::vector<std::uint32_t>& shown() const { return shown_; }

 private:
  std::vector<std::int64_t> tokens_;
  std::int64_t vocab_size_;
  std::size_t next_ = 0;
  std::vector<std::uint32_t> shown_;
};

TrainOptions options_with(const std::string& tokenizer, const std::string& sample) {
  TrainOptions options;
  options.data.tokenizer = tokenizer;
  options.output.sample = sample;
  finalize(options);
  return options;
}

TEST(Generate, ContinuesBytesUpToTheEndOfText) {
  Typist model({'h', 'i', 256, 'x'}, 258);
  EXPECT_EQ(generate(model, options_with("bytes", "oh")), "hi");
  EXPECT_EQ(model.shown(), (std::vector<std::uint32_t>{256, 'o', 'h'}));
}

TEST(Generate, WritesTheTokenizersText) {
  Typist model({271, 303, 0}, 340);  // " cat", " sat" and the end
  EXPECT_EQ(generate(model, options_with(kTokenizer, "the")), " cat sat");
  EXPECT_EQ(model.shown(), (std::vector<std::uint32_t>{0, 302}));
}

TEST(Generate, BeginsAsTheTokenizersDocumentsDo) {
  const TempFolder folder;
  auto file = nlohmann::json::parse(read_text_file(kTokenizer));
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<|im_start|>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<|im_start|>", {{"ids", {1}}}}}}};
  TrainOptions options = options_with(folder.write("tokenizer.json", file.dump()), "the");
  Typist model({271, 0}, 340);
  EXPECT_EQ(generate(model, options), " cat");
  EXPECT_EQ(model.shown(), (std::vector<std::uint32_t>{1, 302}));
}

TEST(Generate, NeverDrawsATokenThatTheTokenizerLacks) {
  TrainOptions options = options_with(kTokenizer, "the");
  options.data.vocab_size = 1000;
  finalize(options);
  std::vector<std::int64_t> beyond(400, 999);
  Typist model(beyond, 1000);  // all that the tokenizer has is equally likely
  EXPECT_NO_THROW(generate(model, options));
  EXPECT_NO_THROW(check_can_generate(options));
  options.model.vocab_size = 300;
  expect_throws<CheckError>([&] { generate(model, options); }, {"too few"});
  expect_throws<CheckError>([&] { check_can_generate(options); }, {"too few"});
}

TEST(Generate, AnswersTheSampleThatWasEncoded) {
  const TempFolder folder;
  EncodedParts parts = {.rows = "chat", .mask = {0, 1}};
  parts.sample = {{"text", "Hi"}, {"tokens", {'<', 'H', 'i', '>'}}};
  TrainOptions options;
  options.data.rows = Rows::kChat;
  options.data.source = folder.write("a.bin", encoded_bytes(parts));
  options.output.sample = "Hi";
  finalize(options);
  Typist model({'o', 'h', 256, 'x'}, 258);
  EXPECT_EQ(generate(model, options), "oh");
  EXPECT_EQ(model.shown(), (std::vector<std::uint32_t>{'<', 'H', 'i', '>'}));
  options.output.sample = "Ho";
  expect_throws<CheckError>([&] { check_can_generate(options); }, {"'Hi'", "./ladder encode"});
}

TEST(Generate, TokenIdsHaveNoText) {
  TrainOptions options;
  options.data.source = "a.bin";
  Typist model({1}, 258);
  expect_throws<CheckError>([&] { generate(model, options); }, {"--tokenizer"});
  expect_throws<CheckError>([&] { check_can_generate(options); }, {"--tokenizer"});
}

}  // namespace
}  // namespace ladder
