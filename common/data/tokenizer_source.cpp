#include "common/data/tokenizer_source.hpp"

#include <algorithm>
#include <fstream>

#include "common/core/check.hpp"
#include "common/data/encoded_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

// Null: bytes.
const TokenizerFiles* files_of(const DataOptions& options) {
  const std::string& name = options.tokenizer;
  const bool are_named = !name.empty() && name != "auto" && name != "bytes";
  check(!are_named || options.tokenizer_files != nullptr, "the files of --tokenizer ", name,
        " have not been read: call finalize()");
  return options.tokenizer_files.get();
}

}  // namespace

bool is_encoded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string first(kFirstBytesOfEncoded.size(), '\0');
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  return file && first == kFirstBytesOfEncoded;
}

fs::path tokenizer_path(const DataOptions& options) {
  if (has_unknown_tokens(options)) return {};
  const TokenizerFiles* files = files_of(options);
  return files == nullptr ? fs::path() : files->path();
}

std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options) {
  const TokenizerFiles* files = files_of(options);
  return files == nullptr ? std::make_unique<ByteTokenizer>() : files->open();
}

bool has_unknown_tokens(const DataOptions& options) {
  return options.tokenizer == "auto" && fs::path(options.source).extension() == ".bin" &&
         !is_encoded(options.source);
}

bool needs_models_vocabulary(const DataOptions& options) {
  return has_unknown_tokens(options) && options.vocab_size == 0;
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
