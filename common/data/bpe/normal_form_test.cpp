#include "common/data/bpe/normal_form.hpp"

#include <gtest/gtest.h>

#include "common/core/timer.hpp"

namespace ladder {
namespace {

// scripts/check_tokenizer compares every code point with Python's `tokenizers`.
TEST(NormalForm, ComposesAndOrders) {
  EXPECT_EQ(normal_form_c(""), "");
  EXPECT_EQ(normal_form_c("plain\ntext\x7f"), "plain\ntext\x7f");
  EXPECT_EQ(normal_form_c("e\u0301"), "\u00e9");
  EXPECT_EQ(normal_form_c("q\u0301"), "q\u0301");
  EXPECT_EQ(normal_form_c("a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(normal_form_c("\u212b"), "\u00c5");
  EXPECT_EQ(normal_form_c("\u0958"), "\u0915\u093c");  // is never composed
  EXPECT_EQ(normal_form_c("\u0301e"), "\u0301e");
  EXPECT_EQ(normal_form_c("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(normal_form_c("\uac00\u11a7"), "\uac00\u11a7");
  EXPECT_EQ(normal_form_c("\u09c7\u09be"), "\u09cb");  // two marks that take up space
}

// To Unicode 9, U+0897 and U+1E6F5 are no marks.
TEST(NormalForm, LeavesAloneWhatUnicode9LacksAndCombinesNothingAcrossIt) {
  for (const std::string later : {"\u0897", "\u1abf", "\U0001e6f5", "\U00011938"}) {
    EXPECT_EQ(normal_form_c("e" + later + "\u0301"), "e" + later + "\u0301");
    EXPECT_EQ(normal_form_c("e\u0301" + later), "\u00e9" + later);
  }
  EXPECT_EQ(normal_form_c("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(NormalForm, TakesHardlyLongerForManyMarksThanTheirNumber) {
  std::string text = "e", low, high;
  constexpr int kMarks = 200'000;
  for (int i = 0; i < kMarks; ++i) text += "\u0301\u0316", low += "\u0316", high += "\u0301";
  const Timer timer;
  EXPECT_EQ(normal_form_c(text), "\u00e9" + low + high.substr(2));
  EXPECT_LT(timer.seconds(), 20);  // quadratic: minutes
}

}  // namespace
}  // namespace ladder
