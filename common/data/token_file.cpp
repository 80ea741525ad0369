#include "common/data/token_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/core/check.hpp"

namespace ladder {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped, not converted");

constexpr std::int32_t kMagic16 = 20240520;
constexpr std::int32_t kMagic32 = 20240801;
constexpr std::int32_t kVersion16 = 1;
constexpr std::int32_t kVersion32 = 7;
constexpr std::int64_t kHeaderBytes = 256 * 4;

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

}  // namespace

TokenFile::TokenFile(const std::string& path, std::int64_t vocab_size) : file_(path) {
  const std::string_view bytes = file_.bytes();
  check(!bytes.empty(), path, ": is empty; a token file has at least one token");
  if (is_llm_c(bytes)) {
    read_llm_c_header();
  } else {
    check(bytes.size() % 2 == 0, path, ": has ", bytes.size(),
          " bytes, an odd number; a nanoGPT file has two bytes per token, so this one is truncated "
          "or of another kind");
    num_tokens_ = static_cast<std::int64_t>(bytes.size()) / 2;
  }
  if (token_bytes_ == 2) {
    check_tokens(tokens16(), vocab_size);
  } else {
    check_tokens(tokens32(), vocab_size);
  }
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

std::span<const std::uint16_t> TokenFile::tokens16() const {
  return {reinterpret_cast<const std::uint16_t*>(file_.bytes().data() + first_byte_),
          static_cast<std::size_t>(num_tokens_)};
}

std::span<const std::uint32_t> TokenFile::tokens32() const {
  return {reinterpret_cast<const std::uint32_t*>(file_.bytes().data() + first_byte_),
          static_cast<std::size_t>(num_tokens_)};
}

template <class Token>
void TokenFile::check_tokens(std::span<const Token> tokens, std::int64_t vocab_size) const {
  Token largest = 0;  // a plain maximum first: compiled code for it runs at memory speed
  for (const Token token : tokens) largest = std::max(largest, token);
  if (largest < vocab_size) return;
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [=](Token token) { return token >= vocab_size; });
  check(false, file_.path(), ": token ", *bad, " at position ", bad - tokens.begin(),
        " is beyond the vocabulary of ", vocab_size, "; the largest token of the file is ", largest,
        ", so --vocab-size must be at least ", static_cast<std::int64_t>(largest) + 1,
        " (or this is not a token file)");
}

}  // namespace ladder
