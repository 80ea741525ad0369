#include "common/data/token_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

// An llm.c header that begins with these numbers.
std::string llm_c_header(std::int32_t magic, std::int32_t version, std::int32_t num_tokens) {
  std::string header = bytes_of<std::int32_t>({magic, version, num_tokens});
  header.resize(1024);
  return header;
}

std::vector<std::int64_t> tokens_of(const TokenFile& file) {
  return file.visit(
      [](auto tokens) { return std::vector<std::int64_t>(tokens.begin(), tokens.end()); });
}

class TokenFileTest : public ::testing::Test {
 protected:
  // Opening a file with these bytes must fail with both texts and its name in the message.
  void expect_refused(const std::string& bytes, const std::string& text,
                      const std::string& text2 = "", std::int64_t vocab_size = 50257) {
    const std::string path = folder_.write("refused.bin", bytes);
    expect_throws<CheckError>([&] { TokenFile(path, vocab_size); }, {path, text, text2});
  }

  TempFolder folder_;
};

TEST_F(TokenFileTest, ReadsNanoGpt) {
  const TokenFile file(folder_.write("a.bin", bytes_of<std::uint16_t>({7, 0, 50256, 3})), 50257);
  EXPECT_EQ(file.token_bytes(), 2);
  EXPECT_EQ(file.num_tokens(), 4);
  EXPECT_THAT(tokens_of(file), ElementsAre(7, 0, 50256, 3));
  EXPECT_EQ(TokenFile(folder_.write("one.bin", bytes_of<std::uint16_t>({5})), 6).num_tokens(), 1);
}

TEST_F(TokenFileTest, ReadsLlmC) {
  const std::string path16 = folder_.write(
      "16.bin", llm_c_header(20240520, 1, 3) + bytes_of<std::uint16_t>({1, 2, 65535}));
  const TokenFile file16(path16, 65536);
  EXPECT_EQ(file16.token_bytes(), 2);
  EXPECT_THAT(tokens_of(file16), ElementsAre(1, 2, 65535));
  const std::string path32 =
      folder_.write("32.bin", llm_c_header(20240801, 7, 2) + bytes_of<std::uint32_t>({128000, 9}));
  const TokenFile file32(path32, 128256);
  EXPECT_EQ(file32.token_bytes(), 4);
  EXPECT_EQ(file32.num_tokens(), 2);
  EXPECT_THAT(tokens_of(file32), ElementsAre(128000, 9));
}

TEST_F(TokenFileTest, RefusesWhatIsNoTokenFile) {
  expect_refused("", "is empty");
  expect_refused("abc", "3 bytes, an odd number");
  expect_throws<CheckError>([&] { TokenFile(folder_.path("missing.bin"), 10); },
                            {"missing.bin", "No such file"});
  std::filesystem::create_directory(folder_.path("folder.bin"));
  expect_throws<CheckError>([&] { TokenFile(folder_.path("folder.bin"), 10); }, {"is a directory"});
}

TEST_F(TokenFileTest, RefusesDamagedLlmC) {
  const std::string tokens = bytes_of<std::uint16_t>({1, 2, 3});
  expect_refused(llm_c_header(20240520, 7, 3) + tokens, "has version 7", "only version 1");
  expect_refused(llm_c_header(20240801, 1, 3) + tokens + tokens, "has version 1", "only version 7");
  expect_refused(llm_c_header(20240520, 1, 4) + tokens, "promises 4 tokens", "has 1030");
  expect_refused(llm_c_header(20240520, 1, 2) + tokens, "promises 2 tokens", "take 1028 bytes");
  expect_refused(llm_c_header(20240801, 7, 3) + tokens, "take 1036 bytes");
  expect_refused(llm_c_header(20240520, 1, 3) + tokens + "x", "has 1031");
  expect_refused(llm_c_header(20240520, 1, 0), "promises 0 tokens");
  expect_refused(llm_c_header(20240520, 1, -3) + tokens, "promises -3 tokens");
  expect_refused(llm_c_header(20240520, 1, 3).substr(0, 1000), "only 1000 bytes", "takes 1024");
  // Any other magic reads as nanoGPT's tokens, which are too large for the vocabulary here.
  expect_refused(llm_c_header(20240521, 1, 3) + tokens, "token 55433 at position 0");
}

// Without a header, all of these are an even number of bytes.
TEST_F(TokenFileTest, RefusesWhatIsPlainlyNotTwoBytesPerToken) {
  std::vector<std::uint32_t> wide, large, bytes_swapped;
  std::vector<std::uint64_t> wider;
  std::vector<std::uint16_t> digits;
  for (std::uint32_t i = 0; i < 20; ++i) {
    wide.push_back(i * 2000);
    large.push_back(i * 9973 + 40000);  // from 40,000 to 229,487
    bytes_swapped.push_back(__builtin_bswap32(i * 2000));
    wider.push_back(i);
    digits.push_back(static_cast<std::uint16_t>(i % 10));
  }
  const auto raw = [](const auto& ids) {
    return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0]));
  };
  constexpr const char* kHeader = "need llm.c's header";
  expect_refused(raw(wide), "every other token is 0", kHeader);
  expect_refused(raw(wider), "every other token is 0", kHeader);
  expect_refused(raw(bytes_swapped), "every other token is 0", kHeader);
  expect_refused(raw(large), "every other token is below 16", kHeader);
  expect_refused(bytes_of<std::uint16_t>({1, 2}), "end at 65535", kHeader, 65537);
  expect_refused(llm_c_header(20240520, 1, 1) + "ab", "end at 65535", "has 128256", 128256);
  expect_refused("<!DOCTYPE html>\n<html>\n<body>No such file</body></html>\n",
                 "text that begins with '<!DOCTYPE html>'");
  expect_refused("\x93NUMPY\x01" + std::string(121, ' '), "an array of numpy");
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS pointer",
                 "git lfs pull");
  EXPECT_NO_THROW(TokenFile(folder_.write("digits.bin", raw(digits)), 65536));
  EXPECT_NO_THROW(TokenFile(folder_.write("zeros.bin", std::string(64, '\0')), 10));
  EXPECT_NO_THROW(TokenFile(folder_.write("few.bin", bytes_of<std::uint16_t>({9, 0, 8, 0})), 10));
}

TEST_F(TokenFileTest, RefusesTokensBeyondTheVocabulary) {
  const std::string tokens = bytes_of<std::uint16_t>({1, 11, 10, 12});
  expect_refused(tokens, "token 11 at position 1 is beyond the vocabulary of 11",
                 "--vocab-size must be at least 13", 11);
  expect_refused(tokens, "token 12 at position 3", "", 12);
  EXPECT_NO_THROW(TokenFile(folder_.write("fits.bin", tokens), 13));
  const std::string wide = llm_c_header(20240801, 7, 2) + bytes_of<std::uint32_t>({5, 4294967295u});
  expect_refused(wide, "token 4294967295 at position 1", "at least 4294967296");
}

}  // namespace
}  // namespace ladder
