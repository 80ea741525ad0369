#include "common/data/bpe/added_tokens.hpp"

namespace ladder {

AddedTokenSearch::AddedTokenSearch(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    is_first_byte_[static_cast<unsigned char>(token.content.front())] = true;
    std::size_t node = 0;
    for (const char byte : token.content) {
      const auto [place, is_new] = nodes_[node].next.try_emplace(byte, nodes_.size());
      node = place->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[node].token = token.id;
  }
}

AddedTokenSearch::Found AddedTokenSearch::longest_at_start(std::string_view text) const {
  Found longest;
  const Node* node = &nodes_[0];
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto next = node->next.find(text[i]);
    if (next == node->next.end()) break;
    node = &nodes_[next->second];
    if (node->token >= 0) longest = {node->token, i + 1};
  }
  return longest;
}

void AddedTokenSearch::split(std::string_view text,
                             const std::function<void(std::string_view)>& on_text,
                             const std::function<void(std::uint32_t)>& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Found found = is_first_byte_[static_cast<unsigned char>(text[at])]
                            ? longest_at_start(text.substr(at))
                            : Found();
    if (found.token < 0) {
      ++at;
      continue;
    }
    if (done < at) on_text(text.substr(done, at - done));
    on_token(static_cast<std::uint32_t>(found.token));
    done = at += found.num_bytes;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace ladder
