#include "common/train/pretrained/tokenizer_folder.hpp"

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/partial_folder.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

// What transformers reads besides the model; the last says which tokens begin and end a text.
constexpr const char* kFiles[] = {"tokenizer.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "generation_config.json"};

}  // namespace

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (const char* file : kFiles)
    if (fs::exists(from / file)) copy_file_to_disk(from / file, to / file);
}

void keep_tokenizer(const DataOptions& data, const fs::path& run) {
  const fs::path from = tokenizer_path(data);
  if (from.empty()) return;
  const fs::path kept = run / "tokenizer";
  if (fs::exists(kept)) {
    check(BpeTokenizer(kept).name() == BpeTokenizer(from).name(), kept.string(),
          ": holds another tokenizer than this run's, ", from.string(),
          ": remove it, or choose another --out");
    return;
  }
  PartialFolder partial(kept, kept.string());
  if (fs::is_directory(from)) {
    copy_tokenizer_files(from, partial.path());
  } else {
    copy_file_to_disk(from, partial.path() / "tokenizer.json");
  }
  partial.complete();
}

fs::path kept_tokenizer(const fs::path& checkpoint, const std::string& name) {
  const fs::path kept = plain_path(checkpoint).parent_path().parent_path() / "tokenizer";
  check(fs::is_directory(kept), kept.string(), ": is missing. ", checkpoint.string(),
        " was trained with the tokenizer '", name, "', whose files its run keeps there");
  const std::string found = BpeTokenizer(kept).name();
  check(found == name, kept.string(), ": holds the tokenizer '", found, "', but ",
        checkpoint.string(), " was trained with '", name, "'");
  return kept;
}

}  // namespace ladder
