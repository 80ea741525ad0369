// Byte-pair encoding (Sennrich et al. 2016, algorithm 1, over bytes): a piece of text begins as one
// token per byte. Of all neighbors that the list of merges has, the pair that is first in the list
// becomes one token, the leftmost one if it occurs twice; and so on until no pair is in the list.
//
// A heap holds the pairs, and a linked list the tokens, so n bytes take O(n log n). Pieces that
// occur again, as most words do, come from a cache.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/data/bpe/bpe_files.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

class BpeModel {
 public:
  // Throws CheckError if a part of a merge, or its result, is not in the vocabulary, or a merge
  // occurs twice.
  explicit BpeModel(const BpeDescription& description);

  // Appends the tokens of one piece of the text. A byte that the vocabulary lacks is left out, as in
  // Python's `tokenizers`; vocabularies in use have all that UTF-8 needs.
  void encode(std::string_view piece, TokenList& tokens);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  template <class Value>
  using ByText = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;
  struct CachedTokens {
    std::size_t begin, count;
  };
  static std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }
  // The merge of these neighbors, by its place in the list; -1: there is none.
  std::int64_t merge_of(std::uint32_t left, std::uint32_t right) const {
    const auto found = merges_.find(pair_of(left, right));
    return found == merges_.end() ? -1 : found->second;
  }
  void merge_bytes(std::string_view piece, std::vector<std::uint32_t>& tokens);

  std::array<std::int64_t, 256> token_of_byte_;             // -1: none
  std::unordered_map<std::uint64_t, std::int64_t> merges_;  // of two tokens; its place in the list
  std::vector<std::uint32_t> merged_;                       // what the merge at this place makes
  ByText<std::uint32_t> whole_pieces_;                      // if these ignore merges
  ByText<CachedTokens> cache_;
  std::vector<std::uint32_t> cached_tokens_;
  std::vector<std::uint32_t> scratch_;
};

}  // namespace ladder
