#include "common/core/byte_hash.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace ladder {
namespace {

std::string hash_of(std::initializer_list<std::string_view> pieces) {
  ByteHash hash;
  for (const std::string_view piece : pieces) hash.update(piece.data(), piece.size());
  return hash.digest();
}

TEST(ByteHash, IsXxh3With128Bits) {
  // The value that XXH3's authors publish for no input (`xxh128sum /dev/null`).
  EXPECT_EQ(hash_of({}), "99aa06d3014798d86001c324468d497f");
}

TEST(ByteHash, DependsOnTheBytesAndNotOnThePieces) {
  const std::string hash = hash_of({"ladder"});
  EXPECT_EQ(hash_of({"lad", "", "der"}), hash);
  EXPECT_NE(hash_of({"laddes"}), hash);
  EXPECT_NE(hash_of({"ladder", std::string_view("", 1)}), hash);
}

}  // namespace
}  // namespace ladder
