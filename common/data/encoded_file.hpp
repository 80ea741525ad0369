// A file that ./ladder encode has written: the token ids of texts, conversations or preference
// pairs, made by a tokenizer of any kind in Python, and all that a run needs of that tokenizer.
//
// The first line is a JSON object, filled up with spaces to a multiple of 8 bytes. Behind it are
// arrays, without gaps. docs/encoded_files.md has the members and the arrays.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/mapped_file.hpp"
#include "common/data/options.hpp"
#include "common/data/row_tokens.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

inline constexpr std::string_view kFirstBytesOfEncoded = R"({"ladder_tokens": )";

// Whether the file's first bytes say that it is one. Not if it cannot be read.
bool is_encoded(const std::string& path);

// The name of a tokenizer with these files, by their names: "encoded" and a hash of them. And whether a
// name is one of those.
std::string name_of_encoded(const std::map<std::string, std::string_view>& files);
bool is_of_encoded(const std::string& name);

class EncodedFile final : public TokenizerFiles {
 public:
  // Maps the file. Throws CheckError with its name if it is damaged, or of a later version.
  explicit EncodedFile(const std::string& path);

  Rows rows() const { return rows_; }  // kDocuments, kChat or kPairs
  std::int64_t first_token_byte() const { return first_token_byte_; }
  std::int64_t token_bytes() const { return token_bytes_; }  // 2 or 4
  std::int64_t num_tokens() const { return num_tokens_; }
  // Where documents, conversations or pairs begin, and their parts. The tokens stay in the file.
  TokenizedText boundaries() const;

  // A tokenizer that encodes one text only: the sample that ./ladder encode was given.
  std::unique_ptr<Tokenizer> open() const override;
  const std::filesystem::path& path() const override { return no_path_; }
  // The files of the tokenizer, by their names, as an export is to have them.
  const std::map<std::string, std::string_view>& files() const { return files_; }

 private:
  struct Vocabulary;  // encoded_file.cpp
  class OpenTokenizer;

  std::filesystem::path no_path_;  // of other files: all are in this one
  MappedFile file_;
  Rows rows_ = Rows::kDocuments;
  std::int64_t first_token_byte_ = 0, token_bytes_ = 2, num_tokens_ = 0;
  std::span<const std::int64_t> starts_;
  std::string_view mask_;  // of conversations: a byte for each token, 1 if it is learned
  std::map<std::string, std::string_view> files_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace ladder
