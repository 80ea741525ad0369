#include "common/data/bpe/named_tokenizer.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/encoded_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

class BpeFiles final : public TokenizerFiles {
 public:
  explicit BpeFiles(const fs::path& path) : path_(path), description_(read(path)) {}
  std::unique_ptr<Tokenizer> open() const override {
    return std::make_unique<BpeTokenizer>(description_);
  }
  const fs::path& path() const override { return path_; }
  const BpeDescription& description() const { return description_; }

 private:
  static BpeDescription read(const fs::path& path) {
    try {
      return read_bpe_files(path);
    } catch (const CheckError& error) {
      const std::string problem = error.what();
      throw CheckError(problem.find("support") == std::string::npos
                           ? problem
                           : problem +
                                 ". ./ladder encode makes token ids of your data with any "
                                 "tokenizer: see ./ladder encode --help");
    }
  }

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
  if (is_encoded(options.source)) {
    check_usage(options.tokenizer == "auto", "--tokenizer ", options.tokenizer, ": ",
                options.source, " brings the tokenizer that it was encoded with; leave it out");
    return std::make_shared<const EncodedFile>(options.source);
  }
  const fs::path path = named_path(options);
  if (path.empty()) return nullptr;
  const auto files = std::make_shared<const BpeFiles>(path);
  return options.tokenizer == "auto" && has_tokens_of_bytes(files->description()) ? nullptr : files;
}

bool is_tokenizer_named(const DataOptions& options) {
  return options.tokenizer == "bytes" || is_encoded(options.source) || !named_path(options).empty();
}

}  // namespace ladder
