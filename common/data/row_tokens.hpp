// Which of the stored tokens are in a row, and the row as inputs and targets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/data/batch.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// Consecutive tokens of those stored.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

// A row has the tokens of the prompt, then those of the text, which has at least one. Each token
// but the last is an input. Each token of the text that follows an input is a target; tokens of the
// prompt never are. The row of a window or of a document has no prompt.
struct RowTokens {
  TokenRange prompt;
  TokenRange text;

  std::int64_t length() const { return prompt.length + text.length; }
  std::int64_t num_targets() const {
    return prompt.length > 0 ? text.length : text.length - 1;  // the very first token follows none
  }
};

// Writes the row to `tokens` and `targets`, each [context], and pads them. The row has at most
// context + 1 tokens.
template <class Token>
void write_row(const RowTokens& row, std::span<const Token> stored, std::int64_t context,
               std::int64_t* tokens, std::int64_t* targets) {
  const auto token = [&](std::int64_t t) {
    const std::int64_t place =
        t < row.prompt.length ? row.prompt.begin + t : row.text.begin + t - row.prompt.length;
    return static_cast<std::int64_t>(stored[static_cast<std::size_t>(place)]);
  };
  const std::int64_t num_inputs = row.length() - 1;
  for (std::int64_t t = 0; t < num_inputs; ++t) {
    tokens[t] = token(t);
    targets[t] = t + 1 < row.prompt.length ? kIgnoredTarget : token(t + 1);
  }
  std::fill(tokens + num_inputs, tokens + context, ByteTokenizer::kPadding);
  std::fill(targets + num_inputs, targets + context, kIgnoredTarget);
}

}  // namespace ladder
