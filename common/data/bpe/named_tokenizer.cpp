#include "common/data/bpe/named_tokenizer.hpp"

#include <algorithm>

#include "common/data/bpe/bpe_tokenizer.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

class BpeFiles final : public TokenizerFiles {
 public:
  explicit BpeFiles(const fs::path& path) : path_(path), description_(read_bpe_files(path)) {}
  std::unique_ptr<Tokenizer> open() const override {
    return std::make_unique<BpeTokenizer>(description_);
  }
  const fs::path& path() const override { return path_; }
  const BpeDescription& description() const { return description_; }

 private:
  fs::path path_;
  BpeDescription description_;
};

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
  const bool may_change_text =
      description.is_nfc || !description.begin_of_text.empty() ||
      std::ranges::any_of(description.stages, [](const PreTokenizerStage& stage) {
        return stage.adds_prefix_space || stage.removed != Removed::kNothing;
      });
  if (description.vocab_size != ByteTokenizer::kVocabSize || may_change_text) return false;
  const BpeTokenizer tokenizer(description);
  const ByteTokenizer bytes;
  for (std::uint32_t token = 0; token < ByteTokenizer::kVocabSize; ++token)
    if (tokenizer.text_of(token) != bytes.text_of(token)) return false;
  return tokenizer.end_of_text() == bytes.end_of_text() && tokenizer.padding() == bytes.padding();
}

}  // namespace

std::shared_ptr<const TokenizerFiles> read_tokenizer(const DataOptions& options) {
  const fs::path path = named_path(options);
  if (path.empty()) return nullptr;
  const auto files = std::make_shared<const BpeFiles>(path);
  return options.tokenizer == "auto" && has_tokens_of_bytes(files->description()) ? nullptr : files;
}

bool is_tokenizer_named(const DataOptions& options) {
  return options.tokenizer == "bytes" || !named_path(options).empty();
}

}  // namespace ladder
