#include "common/data/tokenizer_source.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

// Where a model has its tokenizer; empty: nowhere.
fs::path tokenizer_of(const fs::path& model) {
  const bool is_checkpoint = fs::exists(model / "state.json");  // RUN/checkpoints/step_NNNNNN
  for (const fs::path& folder : {model, model / (is_checkpoint ? "../../tokenizer" : "tokenizer")})
    if (has_tokenizer(folder)) return folder;
  return {};
}

// The folder or file that is named, even if its tokens are bytes.
fs::path named_path(const DataOptions& options) {
  if (options.tokenizer == "bytes") return {};
  if (options.tokenizer != "auto") return options.tokenizer;
  return options.pretrained.empty() ? fs::path() : tokenizer_of(options.pretrained);
}

bool has_tokens_of_bytes(const BpeDescription& description) {
  if (description.vocab_size != ByteTokenizer::kVocabSize) return false;
  const BpeTokenizer tokenizer(description);
  const ByteTokenizer bytes;
  for (std::uint32_t token = 0; token < ByteTokenizer::kVocabSize; ++token)
    if (tokenizer.text_of(token) != bytes.text_of(token)) return false;
  return tokenizer.end_of_text() == bytes.end_of_text() && tokenizer.padding() == bytes.padding();
}

std::shared_ptr<const BpeDescription> description_of(const DataOptions& options) {
  return options.bpe != nullptr ? options.bpe : read_tokenizer(options);
}

}  // namespace

std::shared_ptr<const BpeDescription> read_tokenizer(const DataOptions& options) {
  const fs::path path = named_path(options);
  if (path.empty()) return nullptr;
  const auto description = std::make_shared<const BpeDescription>(read_bpe_files(path));
  return options.tokenizer == "auto" && has_tokens_of_bytes(*description) ? nullptr : description;
}

bool is_tokenizer_named(const DataOptions& options) {
  return options.tokenizer == "bytes" || !named_path(options).empty();
}

fs::path tokenizer_path(const DataOptions& options) {
  if (has_unknown_tokens(options) || description_of(options) == nullptr) return {};
  return named_path(options);
}

std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options) {
  const auto description = description_of(options);
  if (description == nullptr) return std::make_unique<ByteTokenizer>();
  return std::make_unique<BpeTokenizer>(*description);
}

bool has_unknown_tokens(const DataOptions& options) {
  return options.tokenizer == "auto" && fs::path(options.source).extension() == ".bin";
}

void check_vocab_size(const DataOptions& options, const Tokenizer& tokenizer) {
  check_usage(options.vocab_size == 0 || options.vocab_size >= tokenizer.vocab_size(),
              options.source, ": --vocab-size ", options.vocab_size,
              " does not fit: the tokenizer '", tokenizer.name(), "' has ", tokenizer.vocab_size(),
              " tokens; leave it out");
}

std::int64_t vocab_size_of(const DataOptions& options) {
  if (has_unknown_tokens(options)) {
    check_usage(options.vocab_size > 0, options.source,
                ": a token file does not record its vocabulary size, and --vocab-size is ",
                options.vocab_size, "; set it, for example --vocab-size 50257 for GPT-2's tokens, ",
                "or name the tokenizer that wrote the file with --tokenizer");
    return options.vocab_size;
  }
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  check_vocab_size(options, *tokenizer);
  return std::max(options.vocab_size, tokenizer->vocab_size());
}

}  // namespace ladder
