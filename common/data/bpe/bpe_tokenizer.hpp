// Byte-level BPE: the tokenizers of GPT-2, SmolLM2, Llama 3 and others, from their files.
//
// Added tokens are found in the text first. What is between them is cut into pieces by the stages of
// the pre-tokenizer, and each piece is encoded by itself. The ids are those of Python's `tokenizers`
// (scripts/check_tokenizer) without what a post-processor adds, which is begin_of_text() and
// end_of_text(). Text that is not UTF-8 is read as byte_alphabet.hpp says.
#pragma once

#include <filesystem>
#include <vector>

#include "common/data/bpe/bpe_model.hpp"
#include "common/data/bpe/split_text.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

class BpeTokenizer : public Tokenizer {
 public:
  // Reads a folder or a tokenizer.json, with the errors of read_bpe_files().
  explicit BpeTokenizer(const std::filesystem::path& path);
  // Throws CheckError if the merges or the pattern of the pre-tokenizer are not such.
  explicit BpeTokenizer(const BpeDescription& description);

  using Tokenizer::encode;
  // Throws CheckError for a text of more than a GiB.
  void encode(std::string_view text, TokenList& tokens) override;
  std::string_view text_of(std::uint32_t token) const override { return texts_.at(token); }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::uint32_t end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> begin_of_text() const override { return begin_of_text_; }
  std::uint32_t padding() const override { return padding_; }
  std::string name() const override { return name_; }  // "bpe " and a hash

 private:
  struct Stage {
    bool adds_prefix_space;
    std::optional<SplitPattern> pattern;
    Removed removed;
  };
  // Encodes what is between tokens that are found as they are written.
  void encode_between(std::string_view source, TokenList& tokens);
  // Cuts the piece by this stage and those after it, and encodes what comes out.
  void encode_piece(std::string_view piece, std::size_t stage, TokenList& tokens);

  BpeModel model_;
  bool is_nfc_;
  AddedTokenSearch added_first_, added_next_;
  std::vector<Stage> stages_;
  std::vector<std::string> texts_;  // by id
  std::uint32_t end_of_text_, padding_;
  std::optional<std::uint32_t> begin_of_text_;
  std::string name_;
};

}  // namespace ladder
