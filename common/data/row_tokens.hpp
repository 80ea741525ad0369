// Tokens as they are stored, which of them are in a row, and the row as inputs and targets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/data/tokenizer.hpp"

namespace ladder {

// Marks a position without a target (padding), which the loss ignores. PyTorch's usual value.
inline constexpr std::int64_t kIgnoredTarget = -100;

// Documents, conversations or preference pairs, one after the other.
struct TokenizedText {
  TokenList tokens;
  std::vector<std::int64_t> starts = {};  // where each of them begins
  // Where the parts of each end, which conversations.hpp and preference_pairs.hpp name; documents
  // have none. And for each conversation, where its parts begin in this list.
  std::vector<std::int64_t> part_ends = {}, first_parts = {};
  std::set<std::string> ignored = {};  // names of members of the file that say nothing here
  std::int64_t end = 0;                // of the last one, if the tokens stay in a file

  std::int64_t length(std::int64_t number) const {
    const auto k = static_cast<std::size_t>(number);
    return (k + 1 < starts.size() ? starts[k + 1] : std::max(tokens.size(), end)) - starts[k];
  }
};

// Consecutive tokens of those stored.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool is_target = true;  // a model is to predict them, if they follow something
};

// A row is the tokens of its ranges, one range after the other. Each token but the last is an
// input. A token of a range that is_target is the target of the input before it.
struct RowTokens {
  std::vector<TokenRange> ranges;

  std::int64_t length() const {
    std::int64_t sum = 0;
    for (const TokenRange& range : ranges) sum += range.length;
    return sum;
  }
  // Calls visit(place among the stored tokens, position in the row, is it a target). The first
  // token of a row follows nothing, so it is none.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::int64_t position = 0;
    for (const TokenRange& range : ranges) {
      for (std::int64_t i = 0; i < range.length; ++i, ++position)
        visit(range.begin + i, position, range.is_target && position > 0);
    }
  }
  std::int64_t num_targets() const {
    std::int64_t sum = 0, position = 0;
    for (const TokenRange& range : ranges) {
      const bool has_first = position == 0 && range.length > 0;  // of the row; it follows nothing
      if (range.is_target) sum += range.length - has_first;
      position += range.length;
    }
    return sum;
  }
};

// Writes the row to `tokens` and `targets`, each [context], and fills up the tokens with `padding`.
// The row has at most context + 1 tokens.
template <class Token>
void write_row(const RowTokens& row, std::span<const Token> stored, std::int64_t context,
               std::int64_t padding, std::int64_t* tokens, std::int64_t* targets) {
  const std::int64_t num_inputs = std::max<std::int64_t>(row.length() - 1, 0);
  row.for_each([&](std::int64_t place, std::int64_t position, bool is_target) {
    const auto token = static_cast<std::int64_t>(stored[static_cast<std::size_t>(place)]);
    if (position < num_inputs) tokens[position] = token;
    if (position > 0) targets[position - 1] = is_target ? token : kIgnoredTarget;
  });
  std::fill(tokens + num_inputs, tokens + context, padding);
  std::fill(targets + num_inputs, targets + context, kIgnoredTarget);
}

}  // namespace ladder
