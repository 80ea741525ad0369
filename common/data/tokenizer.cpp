#include "common/data/tokenizer.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<std::uint16_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<std::uint16_t> tokens(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::uint16_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const std::uint16_t token : tokens) {
    check(token < kVocabSize, "token ", token, " is not one of the ", kVocabSize, " byte tokens");
    if (token < kEndOfText) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace ladder
