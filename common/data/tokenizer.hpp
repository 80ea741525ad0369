// The tokenizer of text: one token a byte, so any file is text and there is nothing to train or to
// ship.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

class ByteTokenizer {
 public:
  static constexpr std::int64_t kEndOfText = 256;  // follows every document
  static constexpr std::int64_t kPadding = 257;    // fills up rows; never a target
  static constexpr std::int64_t kVocabSize = 258;

  // The bytes of the text, whatever they are; no token is added.
  static std::vector<std::uint16_t> encode(std::string_view text);

  // The text again. End of text and padding stand for no byte and are left out. Throws CheckError
  // for a token that is not one of the kVocabSize.
  static std::string decode(std::span<const std::uint16_t> tokens);
};

}  // namespace ladder
