#include "common/data/bpe/bpe_model.hpp"

#include <functional>
#include <queue>

#include "common/core/check.hpp"
#include "common/data/bpe/byte_alphabet.hpp"

namespace ladder {
namespace {

constexpr std::size_t kMostCachedPieces = 1 << 17;
constexpr std::size_t kMostCachedBytes = 256;  // of a piece

// A token of a piece that is being merged, in a doubly linked list.
struct Link {
  std::uint32_t token;
  std::int64_t previous, next;  // -1: none
  bool is_removed = false;
};

}  // namespace

BpeModel::BpeModel(const BpeDescription& description) {
  const auto& vocabulary = description.vocabulary;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary.find(letter_of(static_cast<unsigned char>(byte)));
    token_of_byte_[byte] = found == vocabulary.end() ? -1 : std::int64_t{found->second};
  }
  merges_.reserve(description.merges.size());
  merged_.reserve(description.merges.size());
  for (const auto& [left, right] : description.merges) {
    const auto token = [&, &left = left, &right = right](const std::string& text) {
      const auto found = vocabulary.find(text);
      check(found != vocabulary.end(), description.file, ": merge ", merged_.size(), ", \"", left,
            " ", right, "\": the vocabulary has no token \"", text, "\"");
      return found->second;
    };
    const std::uint64_t pair = pair_of(token(left), token(right));
    merged_.push_back(token(left + right));
    const bool is_new = merges_.emplace(pair, static_cast<std::int64_t>(merged_.size()) - 1).second;
    check(is_new, description.file, ": the merge \"", left, " ", right, "\" occurs twice");
  }
  if (!description.ignores_merges) return;
  for (const auto& [letters, token] : vocabulary)
    if (const auto bytes = bytes_of_letters(letters)) whole_pieces_.emplace(*bytes, token);
}

void BpeModel::encode(std::string_view piece, TokenList& tokens) {
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end())
    return tokens.push_back(whole->second);
  const auto append = [&](std::span<const std::uint32_t> found) {
    for (const std::uint32_t token : found) tokens.push_back(token);
  };
  if (const auto cached = cache_.find(piece); cached != cache_.end())
    return append(std::span(cached_tokens_).subspan(cached->second.begin, cached->second.count));
  merge_bytes(piece, scratch_);
  append(scratch_);
  if (piece.size() > kMostCachedBytes || cache_.size() == kMostCachedPieces) return;
  cache_.emplace(piece, CachedTokens{cached_tokens_.size(), scratch_.size()});
  cached_tokens_.insert(cached_tokens_.end(), scratch_.begin(), scratch_.end());
}

void BpeModel::merge_bytes(std::string_view piece, std::vector<std::uint32_t>& tokens) {
  std::vector<Link> links;
  links.reserve(piece.size());
  for (const char byte : piece) {
    const std::int64_t token = token_of_byte_[static_cast<unsigned char>(byte)];
    if (token < 0) continue;
    const auto place = static_cast<std::int64_t>(links.size());
    links.push_back({static_cast<std::uint32_t>(token), place - 1, place + 1});
  }
  if (!links.empty()) links.back().next = -1;
  const auto link = [&](std::int64_t place) -> Link& {
    return links[static_cast<std::size_t>(place)];
  };

  using Candidate = std::pair<std::int64_t, std::int64_t>;  // a merge, and where its left token is
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto propose = [&](std::int64_t left, std::int64_t right) {
    if (left < 0 || right < 0) return;
    const std::int64_t merge = merge_of(link(left).token, link(right).token);
    if (merge >= 0) candidates.emplace(merge, left);
  };
  for (std::int64_t i = 0; i + 1 < static_cast<std::int64_t>(links.size()); ++i) propose(i, i + 1);

  while (!candidates.empty()) {
    const auto [merge, place] = candidates.top();
    candidates.pop();
    Link& left = link(place);
    if (left.is_removed || left.next < 0) continue;
    Link& right = link(left.next);
    const std::uint32_t made = merged_[static_cast<std::size_t>(merge)];
    // The neighbors may have changed since. `tokenizers` asks only whether they still make the same.
    const std::int64_t current = merge_of(left.token, right.token);
    if (current < 0 || merged_[static_cast<std::size_t>(current)] != made) continue;
    left.token = made;
    left.next = right.next;
    right.is_removed = true;
    if (left.next >= 0) link(left.next).previous = place;
    propose(left.previous, place);
    propose(place, left.next);
  }

  tokens.clear();
  for (std::int64_t i = links.empty() ? -1 : 0; i >= 0; i = link(i).next)
    tokens.push_back(link(i).token);
}

}  // namespace ladder
