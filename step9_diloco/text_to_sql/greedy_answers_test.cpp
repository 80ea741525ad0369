#include "step9_diloco/text_to_sql/greedy_answers.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kVocabSize = 260;  // two more than the tokenizer has

// A model that repeats the token of `distance` positions ago; after a '.', it ends the text.
at::Tensor repeat(const at::Tensor& tokens, std::int64_t distance) {
  const std::int64_t num_rows = tokens.size(0), length = tokens.size(1);
  at::Tensor logits = at::zeros({num_rows, length, kVocabSize});
  auto seen = tokens.accessor<std::int64_t, 2>();
  auto to = logits.accessor<float, 3>();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t last = seen[row][t];
      const std::int64_t next = last == '.' ? ByteTokenizer::kEndOfText
                                            : seen[row][std::max<std::int64_t>(0, t - distance)];
      to[row][t][next] = 1;
      to[row][t][kVocabSize - 1] = 2;  // no token of the tokenizer
    }
  }
  return logits;
}

std::vector<std::string> answers_of(const std::vector<std::string>& prompts,
                                    const AnswerLimits& limits, std::int64_t distance = 2) {
  ByteTokenizer tokenizer;
  return greedy_answers([=](const at::Tensor& tokens) { return repeat(tokens, distance); },
                        tokenizer, prompts, limits);
}

TEST(GreedyAnswers, AreThoseOfEachPrompt) {  // whatever its neighbors in a batch
  const std::vector<std::string> prompts = {"a long one: 1.3", "7.9", "12.45", "", "over."};
  for (const std::int64_t batch_size : {1, 2, 3, 5})
    EXPECT_EQ(answers_of(prompts, {.context = 32, .batch_size = batch_size}),
              (std::vector<std::string>{"1.", "7.", ".", "", ""}))
        << "in batches of " << batch_size;
}

TEST(GreedyAnswers, EndWithTheTextOrAfterSoManyTokens) {
  EXPECT_EQ(answers_of({"x.z"}, {.context = 8}).front(), "x.");
  EXPECT_EQ(answers_of({"abc"}, {.context = 8, .max_tokens = 5}).front(), "abcab");
  EXPECT_EQ(answers_of({"abc"}, {.context = 8, .max_tokens = 0}).front(), "");
}

TEST(GreedyAnswers, SeeTheLastTokensOfALongPrompt) {  // all that fit
  EXPECT_EQ(answers_of({"wxyz"}, {.context = 3, .max_tokens = 4}).front(), "xyzx");
  EXPECT_EQ(answers_of({"wxyz"}, {.context = 4, .max_tokens = 4}, 3).front(), "wxyz");
  EXPECT_EQ(answers_of({"wxyz"}, {.context = 2, .max_tokens = 2}, 1).front(), "yz");
}

TEST(GreedyAnswers, ReportProgressAndRefuseAnEmptyContext) {
  ByteTokenizer tokenizer;
  std::vector<std::size_t> reported;
  greedy_answers([](const at::Tensor& tokens) { return repeat(tokens, 2); }, tokenizer,
                 {"a", "b", "c"}, {.context = 8, .max_tokens = 1, .batch_size = 2},
                 [&](std::size_t number) { reported.push_back(number); });
  EXPECT_EQ(reported, (std::vector<std::size_t>{2, 3}));
  EXPECT_TRUE(answers_of({}, {.context = 8}).empty());
  expect_throws<CheckError>([] { answers_of({"a"}, {.context = 0}); }, {"context of 0"});
}

}  // namespace
}  // namespace ladder
