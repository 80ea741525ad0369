// Text to token ids and back.
//
// A tokenizer has the ids 0 … vocab_size - 1. Special tokens, such as the end of a text, stand for
// no text. A tokenizer is used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ladder {

// Token ids in memory: of 2 bytes each, or of 4 if the vocabulary has more than 65,536.
class TokenList {
 public:
  TokenList() = default;  // for a vocabulary of at most 65,536
  explicit TokenList(std::int64_t vocab_size) {
    if (vocab_size > 65536) tokens_.emplace<Wide>();
  }

  void push_back(std::uint32_t token) {
    if (auto* narrow = std::get_if<Narrow>(&tokens_)) {
      narrow->push_back(static_cast<std::uint16_t>(token));
    } else {
      std::get<Wide>(tokens_).push_back(token);
    }
  }
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    if (const auto* narrow = std::get_if<Narrow>(&tokens_)) return visitor(std::span(*narrow));
    return visitor(std::span(std::get<Wide>(tokens_)));
  }
  void erase(std::int64_t place) {  // in time linear in how many are behind it
    std::visit([=](auto& tokens) { tokens.erase(tokens.begin() + place); }, tokens_);
  }
  std::int64_t size() const {
    return visit([](auto tokens) { return static_cast<std::int64_t>(tokens.size()); });
  }
  std::vector<std::uint32_t> ids() const {
    return visit(
        [](auto tokens) { return std::vector<std::uint32_t>(tokens.begin(), tokens.end()); });
  }
  std::uint32_t operator[](std::int64_t i) const {
    return visit([=](auto tokens) -> std::uint32_t { return tokens[static_cast<std::size_t>(i)]; });
  }

 private:
  using Narrow = std::vector<std::uint16_t>;
  using Wide = std::vector<std::uint32_t>;
  std::variant<Narrow, Wide> tokens_;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the text's tokens to the list, and no other ones. Any bytes are a text.
  virtual void encode(std::string_view text, TokenList& tokens) = 0;
  TokenList encode(std::string_view text);
  // The bytes that a token stands for; none for a special one. token < vocab_size.
  virtual std::string_view text_of(std::uint32_t token) const = 0;
  // Throws CheckError for a token beyond the vocabulary.
  std::string decode(std::span<const std::uint32_t> tokens) const;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::uint32_t end_of_text() const = 0;  // follows every document
  // Precedes every document, if anything does.
  virtual std::optional<std::uint32_t> begin_of_text() const = 0;
  virtual std::uint32_t padding() const = 0;  // fills up rows, never a target
  // Names all that decides about ids. Checkpoints store it, and are valid for no other.
  virtual std::string name() const = 0;
};

// The files of a tokenizer that have been read, which takes a while. They can be deleted since.
class TokenizerFiles {
 public:
  virtual ~TokenizerFiles() = default;
  virtual std::unique_ptr<Tokenizer> open() const = 0;
  virtual const std::filesystem::path& path() const = 0;  // a folder, a tokenizer.json, or nothing
};

// One token per byte. So any file is text, and the tokenizer has no data to train or to ship.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr std::int64_t kEndOfText = 256;
  static constexpr std::int64_t kPadding = 257;
  static constexpr std::int64_t kVocabSize = 258;

  using Tokenizer::encode;
  void encode(std::string_view text, TokenList& tokens) override;
  std::string_view text_of(std::uint32_t token) const override;
  std::int64_t vocab_size() const override { return kVocabSize; }
  std::uint32_t end_of_text() const override { return kEndOfText; }
  std::optional<std::uint32_t> begin_of_text() const override { return std::nullopt; }
  std::uint32_t padding() const override { return kPadding; }
  std::string name() const override { return "bytes"; }
};

}  // namespace ladder
