#include "common/data/token_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/core/check.hpp"
#include "common/data/encoded_file.hpp"

namespace ladder {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped, not converted");

constexpr std::int32_t kMagic16 = 20240520;
constexpr std::int32_t kMagic32 = 20240801;
constexpr std::int32_t kVersion16 = 1;
constexpr std::int32_t kVersion32 = 7;
constexpr std::int64_t kHeaderBytes = 256 * 4;
constexpr const char* kWideIds =
    "ids of 4 bytes need llm.c's header: 256 int32, the first three 20240801, 7 and the number of "
    "tokens";

// The i-th int32 of the file, which must be long enough.
std::int32_t header_word(std::string_view bytes, std::size_t i) {
  std::int32_t word;
  std::memcpy(&word, bytes.data() + 4 * i, sizeof word);
  return word;
}

bool is_llm_c(std::string_view bytes) {
  if (bytes.size() < 4) return false;
  const std::int32_t magic = header_word(bytes, 0);
  return magic == kMagic16 || magic == kMagic32;
}

void check_tokens(const std::string& path, auto tokens, std::int64_t vocab_size) {
  std::uint32_t largest = 0;  // a plain maximum first: compiled code for it runs at memory speed
  for (const std::uint32_t token : tokens) largest = std::max(largest, token);
  if (largest < vocab_size) return;
  const auto bad = std::ranges::find_if(tokens, [=](auto token) { return token >= vocab_size; });
  check(false, path, ": token ", *bad, " at position ", bad - tokens.begin(),
        " is beyond the vocabulary of ", vocab_size, "; the largest token of the file is ", largest,
        ", so --vocab-size must be at least ", std::int64_t{largest} + 1,
        " (or this is not a token file)");
}

}  // namespace

TokenFile::TokenFile(const std::string& path, std::int64_t vocab_size) : file_(path) {
  const std::string_view bytes = file_.bytes();
  check(!bytes.empty(), path, ": is empty; a token file has at least one token");
  if (is_encoded(path)) {
    const EncodedFile encoded(path);
    first_byte_ = encoded.first_token_byte();
    token_bytes_ = encoded.token_bytes();
    num_tokens_ = encoded.num_tokens();
  } else if (is_llm_c(bytes)) {
    read_llm_c_header();
  } else {
    check(bytes.size() % 2 == 0, path, ": has ", bytes.size(),
          " bytes, an odd number; a nanoGPT file has two bytes per token, so this one is truncated "
          "or of another kind");
    num_tokens_ = static_cast<std::int64_t>(bytes.size()) / 2;
    check_is_nano_gpt();
  }
  constexpr std::int64_t kMost = 65'536;
  check(token_bytes_ == 4 || vocab_size <= kMost, path, ": has token ids of 2 bytes, which end at ",
        kMost - 1, ", but the vocabulary has ", vocab_size, "; ", kWideIds);
  visit([&](auto tokens) { check_tokens(path, tokens, vocab_size); });
}

void TokenFile::check_is_nano_gpt() const {
  const std::string_view bytes = file_.bytes();
  check(!bytes.starts_with("\x93NUMPY"), file_.path(),
        ": is an array of numpy with a header; write the ids alone, with array.tofile()");
  constexpr std::size_t kFewest = 16, kEnough = 1 << 20;  // fewer may be anything
  const auto all = tokens<std::uint16_t>(), tokens = all.first(std::min(all.size(), kEnough));
  if (tokens.size() < kFewest) return;
  check(!begins_with_text(bytes), file_.path(), ": is no token file, but text that begins with '",
        bytes.substr(0, bytes.find('\n')).substr(0, 40),
        "'; text is read from .txt and .jsonl files");
  std::array<std::uint16_t, 2> largest = {};  // at even and at odd places
  for (std::size_t i = 0; i < tokens.size(); ++i)
    largest[i % 2] = std::max(largest[i % 2], tokens[i]);
  const auto [small, large] = std::minmax(largest[0], largest[1]);
  // Upper halves of ids below 2^20 are below 16.
  check(small == 0 ? large == 0 : small >= 16 || large < 256, file_.path(),
        ": every other token is ", small == 0 ? "0" : "below 16",
        ", so its ids have 4 bytes or more, and a file without a header is read as ids of 2; ",
        kWideIds);
}

void TokenFile::read_llm_c_header() {
  const std::string_view bytes = file_.bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::int32_t magic = header_word(bytes, 0);
  check(size >= kHeaderBytes, file_.path(), ": begins with llm.c's magic ", magic, " but has only ",
        size, " bytes; the header alone takes ", kHeaderBytes);
  const std::int32_t version = magic == kMagic16 ? kVersion16 : kVersion32;
  check(header_word(bytes, 1) == version, file_.path(), ": llm.c file with magic ", magic,
        " has version ", header_word(bytes, 1), "; only version ", version, " is supported");
  first_byte_ = kHeaderBytes;
  token_bytes_ = magic == kMagic16 ? 2 : 4;
  num_tokens_ = header_word(bytes, 2);
  check(num_tokens_ > 0, file_.path(), ": the header promises ", num_tokens_,
        " tokens, but at least one is required");
  const std::int64_t expected = kHeaderBytes + num_tokens_ * token_bytes_;
  check(size == expected, file_.path(), ": the header promises ", num_tokens_,
        " tokens, which take ", expected, " bytes, but the file has ", size,
        "; it is truncated or damaged");
}

}  // namespace ladder
