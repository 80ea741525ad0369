// The tokens of a source, in memory or in a mapped file, of 2 or 4 bytes each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/data/conversations.hpp"
#include "common/data/corpus/corpus.hpp"
#include "common/data/options.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/token_file.hpp"

namespace ladder {

struct TokenStorage {
  std::string name;       // of the source, for messages
  std::string tokenizer;  // its name, or "token file" if nobody says whose tokens they are
  std::int64_t vocab_size = 0;
  std::int64_t padding = 0;
  std::vector<std::uint32_t> text_bytes = {};  // that each token stands for; empty: not known
  std::variant<TokenizedText, PreferencePairs, Conversations, TokenFile> data = {};

  std::int64_t num_tokens() const;
  std::int64_t token_bytes() const;
  // Where each document or conversation begins; empty for pairs, and for a token file, which does
  // not record this.
  std::span<const std::int64_t> document_starts() const;
  // All that says which tokens belong together, and which of them are targets.
  std::vector<std::span<const std::int64_t>> boundaries() const;
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    if (const auto* file = std::get_if<TokenFile>(&data))
      return file->token_bytes() == 2 ? visitor(file->tokens16()) : visitor(file->tokens32());
    if (const auto* pairs = std::get_if<PreferencePairs>(&data))
      return pairs->tokens.visit(visitor);
    if (const auto* chat = std::get_if<Conversations>(&data)) return chat->tokens.visit(visitor);
    return std::get<TokenizedText>(data).tokens.visit(visitor);
  }
};

// Opens `source`, the value of `option` ("--data" or "--val-data"): a file, or `split` of "corpus".
// The data is a PreferencePairs for Rows::kPairs, Conversations for Rows::kChat, and else a
// TokenizedText or a TokenFile. Throws UsageError for an unknown kind of file, a vocab_size that
// does not fit, and if the source does not have what the rows need. Throws CheckError if a file is
// missing or damaged, or the tokenizer or its chat template is not supported.
TokenStorage open_tokens(const std::string& option, const std::string& source, CorpusSplit split,
                         const DataOptions& options);

}  // namespace ladder
