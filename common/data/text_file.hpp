// Files of text, as token ids: every document is followed by an end-of-text token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

struct TokenizedText {
  std::vector<std::uint16_t> tokens;
  std::vector<std::int64_t> document_starts;  // where each document begins

  void append(std::string_view document);
};

// A .txt file is one document, whatever bytes it holds. Throws CheckError where it is empty.
TokenizedText read_txt(const std::string& path);

// A .jsonl file has a JSON object a line, with some of the texts `context`, `question`, `answer`; a
// document is those present, in this order, joined by newlines. Other members are ignored, blank
// lines skipped. Throws CheckError with file:line for what is malformed, has none of the three, or
// has one of them twice or not as text.
TokenizedText read_jsonl(const std::string& path);

}  // namespace ladder
