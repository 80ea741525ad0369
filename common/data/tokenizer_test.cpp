#include "common/data/tokenizer.hpp"

#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

TEST(ByteTokenizer, GivesEveryByteBack) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const std::vector<std::uint16_t> tokens = ByteTokenizer::encode(text);
  ASSERT_EQ(tokens.size(), 256u);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(tokens[i], i);
  EXPECT_EQ(ByteTokenizer::decode(tokens), text);
  EXPECT_TRUE(ByteTokenizer::encode("").empty());
}

TEST(ByteTokenizer, SpecialTokensStandForNoByte) {
  EXPECT_EQ(ByteTokenizer::decode(std::vector<std::uint16_t>{'a', 256, 'b', 257, 257}), "ab");
  EXPECT_EQ(ByteTokenizer::decode({}), "");
}

TEST(ByteTokenizer, RefusesOtherTokens) {
  EXPECT_THROW(ByteTokenizer::decode(std::vector<std::uint16_t>{'a', 258}), CheckError);
  EXPECT_THROW(ByteTokenizer::decode(std::vector<std::uint16_t>{65535}), CheckError);
}

}  // namespace
}  // namespace ladder
