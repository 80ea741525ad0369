// For tests of data: rows of tokens, or of targets, as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "common/data/batch.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// A line for each row. `special` tokens are written as such a letter, and no target as '_'.
inline std::vector<std::string> rows_as_text(const at::Tensor& rows, const Tokenizer& tokenizer,
                                             const std::map<std::int64_t, char>& special) {
  std::vector<std::string> lines;
  const auto* data = rows.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    if (i % rows.size(1) == 0) lines.emplace_back();
    const auto found = special.find(data[i]);
    lines.back() += data[i] == kIgnoredTarget ? "_"
                    : found != special.end()
                        ? std::string(1, found->second)
                        : std::string(tokenizer.text_of(static_cast<std::uint32_t>(data[i])));
  }
  return lines;
}

// Rows of byte tokens: '.' is the end of a text, '_' padding.
inline std::vector<std::string> rows_as_text(const at::Tensor& rows) {
  return rows_as_text(rows, ByteTokenizer(),
                      {{ByteTokenizer::kEndOfText, '.'}, {ByteTokenizer::kPadding, '_'}});
}

}  // namespace ladder
