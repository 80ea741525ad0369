#include "common/data/tokenizer.hpp"

#include <array>

#include "common/core/check.hpp"

namespace ladder {

TokenList Tokenizer::encode(std::string_view text) {
  TokenList tokens(vocab_size());
  encode(text, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (const std::uint32_t token : tokens) {
    check(
        token < vocab_size(), "token ", token, " is not one of the ", vocab_size(),
        " tokens of the tokenizer '", [&] { return name(); }, "'");
    text += text_of(token);
  }
  return text;
}

void ByteTokenizer::encode(std::string_view text, TokenList& tokens) {
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
}

std::string_view ByteTokenizer::text_of(std::uint32_t token) const {
  static constexpr auto kBytes = [] {
    std::array<char, 256> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
    return bytes;
  }();
  return token < kEndOfText ? std::string_view(kBytes.data() + token, 1) : std::string_view();
}

}  // namespace ladder
