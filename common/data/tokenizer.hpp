// The tokenizer of text: one token per byte. So any file is text, and the tokenizer has no data to
// train or to ship.
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
  static constexpr std::int64_t kPadding = 257;    // fills up rows, never a target
  static constexpr std::int64_t kVocabSize = 258;

  // Returns the bytes of the text, whatever they are; adds no token.
  static std::vector<std::uint16_t> encode(std::string_view text);

  // Returns the text. The end-of-text and padding tokens represent no byte and are left out. Throws
  // CheckError for a token that is not one of the kVocabSize.
  static std::string decode(std::span<const std::uint16_t> tokens);
};

}  // namespace ladder
