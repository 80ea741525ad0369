#include "common/data/conversations.hpp"

#include <algorithm>

namespace ladder {
RowTokens row_of_conversation(const TokenizedText& text, std::int64_t conversation,
                              std::int64_t context) {
  const auto k = static_cast<std::size_t>(conversation);
  const auto first = static_cast<std::size_t>(text.first_parts[k]);
  const auto last = k + 1 < text.first_parts.size()
                        ? static_cast<std::size_t>(text.first_parts[k + 1])
                        : text.part_ends.size();
  std::int64_t begin = text.starts[k];
  const std::int64_t end = begin + std::min(text.length(conversation), context + 1);
  RowTokens row;
  bool is_target = false;
  const auto add_up_to = [&](std::int64_t part_end) {
    const std::int64_t length = std::min(part_end, end) - begin;
    if (length > 0) row.ranges.push_back({begin, length, is_target});
    begin += length;
    is_target = !is_target;
  };
  for (std::size_t i = first; i < last; ++i) add_up_to(text.part_ends[i]);
  add_up_to(end);
  return row;
}

}  // namespace ladder
