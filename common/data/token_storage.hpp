// The tokens of a source, in memory or in a mapped file, of 2 or 4 bytes each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/data/corpus/corpus.hpp"
#include "common/data/options.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/token_file.hpp"

namespace ladder {

struct TokenStorage {
  std::string name;       // of the source, for messages
  std::string tokenizer;  // "bytes" or "token file"
  std::int64_t vocab_size = 0;
  std::variant<TokenizedText, PreferencePairs, TokenFile> data;

  std::int64_t num_tokens() const;
  std::int64_t token_bytes() const;
  // Where each document begins; empty for pairs, and for a token file, which does not record this.
  std::span<const std::int64_t> document_starts() const;
  // Where each document begins, or where each part of a pair ends.
  std::span<const std::int64_t> boundaries() const;
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    if (const auto* text = std::get_if<TokenizedText>(&data))
      return visitor(std::span<const std::uint16_t>(text->tokens));
    if (const auto* pairs = std::get_if<PreferencePairs>(&data))
      return visitor(std::span<const std::uint16_t>(pairs->tokens));
    const auto* file = std::get_if<TokenFile>(&data);
    return file->token_bytes() == 2 ? visitor(file->tokens16()) : visitor(file->tokens32());
  }
};

// Opens `source`, the value of `option` ("--data" or "--val-data"): a file, or `split` of "corpus".
// The data is a PreferencePairs for Rows::kPairs, and else a TokenizedText or a TokenFile. Throws
// UsageError for an unknown kind of file, a vocab_size that does not fit the kind, and if the
// source does not mark documents for Rows::kDocuments or has no pairs for Rows::kPairs. Throws
// CheckError if a file is missing or damaged.
TokenStorage open_tokens(const std::string& option, const std::string& source, CorpusSplit split,
                         const DataOptions& options);

}  // namespace ladder
