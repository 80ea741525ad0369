#include "common/data/bpe/normal_form.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/timer.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

std::string normal(const std::string& text) {
  return normal_form_c(text).text;
}

// scripts/check_tokenizer compares every code point with Python's `tokenizers`.
TEST(NormalForm, ComposesAndOrders) {
  EXPECT_EQ(normal(""), "");
  EXPECT_EQ(normal("plain\ntext\x7f"), "plain\ntext\x7f");
  EXPECT_EQ(normal("e\u0301"), "\u00e9");
  EXPECT_EQ(normal("q\u0301"), "q\u0301");
  EXPECT_EQ(normal("a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(normal("\u212b"), "\u00c5");
  EXPECT_EQ(normal("\u0958"), "\u0915\u093c");  // is never composed
  EXPECT_EQ(normal("\u0301e"), "\u0301e");
  EXPECT_EQ(normal("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(normal("\uac00\u11a7"), "\uac00\u11a7");
  EXPECT_EQ(normal("\u09c7\u09be"), "\u09cb");  // two marks that take up space
}

// To Unicode 9, U+0897 and U+1E6F5 are no marks.
TEST(NormalForm, LeavesAloneWhatUnicode9LacksAndCombinesNothingAcrossIt) {
  for (const std::string later : {"\u0897", "\u1abf", "\U0001e6f5", "\U00011938"}) {
    EXPECT_EQ(normal("e" + later + "\u0301"), "e" + later + "\u0301");
    EXPECT_EQ(normal("e\u0301" + later), "\u00e9" + later);
  }
  EXPECT_EQ(normal("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(NormalForm, KnowsWhereItsBytesComeFrom) {
  const NormalForm form = normal_form_c("xe\u0301yq\u0301\u0316\u212bz");
  ASSERT_EQ(form.text, "x\u00e9yq\u0316\u0301\u00c5z");
  const auto source = [&](std::int64_t begin, std::int64_t end) {
    return form.source_of({begin, end});
  };
  EXPECT_EQ(source(0, 1), (TextSpan{0, 1}));      // x
  EXPECT_EQ(source(1, 3), (TextSpan{1, 4}));      // é
  EXPECT_EQ(source(2, 3), (TextSpan{1, 4}));      // its second byte
  EXPECT_EQ(source(3, 5), (TextSpan{4, 6}));      // yq
  EXPECT_EQ(source(4, 6), (TextSpan{5, 10}));     // q and half of a mark
  EXPECT_EQ(source(7, 9), (TextSpan{6, 10}));     // the other mark
  EXPECT_EQ(source(9, 11), (TextSpan{10, 13}));   // Å
  EXPECT_EQ(source(11, 12), (TextSpan{13, 14}));  // z
  EXPECT_EQ(source(0, 12), (TextSpan{0, 14}));
}

TEST(NormalForm, TakesHardlyLongerForManyMarksThanTheirNumber) {
  std::string text = "e", low, high;
  constexpr int kMarks = 200'000;
  for (int i = 0; i < kMarks; ++i) text += "\u0301\u0316", low += "\u0316", high += "\u0301";
  const Timer timer;
  EXPECT_EQ(normal(text), "\u00e9" + low + high.substr(2));
  EXPECT_LT(timer.seconds(), 20);  // quadratic: minutes
}

}  // namespace
}  // namespace ladder
