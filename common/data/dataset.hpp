// A tokenized data set, cut into samples of `context` tokens.
//
// Rows::kWindows: sample k is tokens [k·T, k·T + T) of the whole data; its targets are shifted by
// one token. Rows::kDocuments: sample k is document k, cut to T + 1 tokens and padded to T; padding
// has no target. Rows::kChat: sample k is conversation k, cut and padded so; see conversations.hpp.
// Rows::kPairs: sample k is preference pair k, which has two rows; see preference_pairs.hpp for
// what is in them and how they are cut.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "common/data/batch.hpp"
#include "common/data/options.hpp"

namespace ladder {

// Targets, and the bytes of text that they stand for. An end of text stands for none.
struct TargetText {
  std::int64_t num_targets = 0;
  std::int64_t num_bytes = 0;
};

struct StoredSamples;  // dataset.cpp

class Dataset {
 public:
  // Opens the training or the validation data that the options name. Throws CheckError with the
  // file's name and the reason if the file is missing, empty, damaged, too short for one sample, has
  // a token beyond the vocabulary, or no target in what is used of it.
  static Dataset open_training(const DataOptions& options);
  // num_samples() is 0 if the options name none.
  static Dataset open_validation(const DataOptions& options);

  std::int64_t num_samples() const;
  std::int64_t num_tokens() const;  // of the whole data, end-of-text tokens included
  // 0 if the data does not mark where they begin. A preference pair counts as one.
  std::int64_t num_documents() const;
  std::int64_t vocab_size() const;
  // The tokenizer's name, or "token file" if nobody says whose tokens they are. It is stored in
  // checkpoints, which are valid for no other.
  std::string tokenizer() const;
  std::string description() const;  // one line for the log: name, documents, tokens, samples
  // Members of the file's lines that say nothing here: "id", or "messages[].timestamp" of messages.
  const std::set<std::string>& ignored_members() const;

  // Reads these B samples as a microbatch [B, T], sample by sample. Of preference pairs it has 2B
  // rows: the chosen answers of all pairs, then the rejected ones in the same order.
  Microbatch read(std::span<const std::int64_t> indices) const;
  // The text of the targets of the first num_samples samples; zeros if it is not known what the
  // tokens stand for.
  TargetText text_of_targets(std::int64_t num_samples) const;
  std::int64_t bytes_read() const;   // of stored tokens, read by read() so far
  std::int64_t token_bytes() const;  // of one as it is stored

  // 32 hexadecimal digits, which name what the samples say, for caches of what depends on it: a
  // hash of all tokens, where documents or the parts of pairs begin, the context, and the kind of
  // rows. Not of the file's name, the batch size or the order. Reads all of the data.
  std::string content_hash() const;
  // The hash of the tokens and of where documents or the parts of pairs begin alone: of what was
  // read, however it is cut. The first call reads all of the data.
  const std::string& source_hash() const;

  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

 private:
  explicit Dataset(StoredSamples samples);
  static Dataset open(const std::string& option, const std::string& source, bool is_training,
                      const DataOptions& options);
  std::unique_ptr<StoredSamples> samples_;
};

}  // namespace ladder
