// Text files as token ids. Every document is followed by an end-of-text token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/tokenizer.hpp"

namespace ladder {

struct TokenizedText {
  TokenList tokens;
  std::vector<std::int64_t> document_starts = {};  // where each document begins

  // With the same tokenizer as the documents before.
  void append(std::string_view document, Tokenizer& tokenizer);
};

// Reads a .txt file as one document, whatever bytes it contains. Throws CheckError if it is empty,
// or begins with the mark of UTF-16.
TokenizedText read_txt(const std::string& path, Tokenizer& tokenizer);

// Reads a .jsonl file, which has one JSON object per line, with some of the strings `text`,
// `context`, `question` and `answer`. Those present, in this order and joined by newlines, are a
// document. Of other members kWeights are refused, and the rest is ignored; blank lines are
// skipped. Throws CheckError with file:line if a line is malformed, has none of the four, has a
// member twice, or has one of them not as a string.
TokenizedText read_jsonl(const std::string& path, Tokenizer& tokenizer);

}  // namespace ladder
