#include "common/data/tokenizer.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

TEST(ByteTokenizer, GivesEveryByteBack) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  ByteTokenizer tokenizer;
  const TokenList tokens = tokenizer.encode(text);
  ASSERT_EQ(tokens.size(), 256);
  for (std::int64_t i = 0; i < 256; ++i) EXPECT_EQ(tokens[i], i);
  EXPECT_EQ(tokenizer.decode(tokens.ids()), text);
  EXPECT_EQ(tokenizer.encode("").size(), 0);
}

TEST(ByteTokenizer, SpecialTokensStandForNoByteAndOthersAreRefused) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<std::uint32_t>{'a', 256, 'b', 257, 257}), "ab");
  EXPECT_THROW(tokenizer.decode(std::vector<std::uint32_t>{'a', 258}), CheckError);
  EXPECT_THROW(tokenizer.decode(std::vector<std::uint32_t>{1u << 31}), CheckError);
}

}  // namespace
}  // namespace ladder
