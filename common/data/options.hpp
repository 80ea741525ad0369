// The source of the tokens and how they are cut into batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ladder {

class TokenizerFiles;

// A new permutation in every epoch, or 0, 1, 2, ….
enum class SampleOrder { kShuffled, kSequential };

// What happens to the samples left over when an epoch does not divide by the number of readers.
enum class Tail { kDrop, kPad };

// How a step's samples are dealt to the ranks: one by one, so that a microbatch's rows depend on the
// number of ranks, or in whole microbatches.
enum class Deal { kSamples, kMicrobatches };

enum class Rows {
  kWindows,    // packed windows of `context` tokens
  kDocuments,  // one document per row, padded
  kPairs,      // one preference pair per sample: a prompt with a chosen and a rejected answer
  kChat,       // one conversation per row, padded; only what the assistant says is a target
};

struct DataOptions {
  std::string source = "corpus";       // "corpus" (built in), or a file: .txt, .jsonl, .bin
  std::string validation_source = {};  // the same; empty: the corpus's own, or none for a file
  // "bytes", a folder with a tokenizer's files, or "auto": that of the pretrained model, or bytes.
  std::string tokenizer = "auto";
  std::string pretrained = {};  // the folder of the model that training starts from, if it does
  // The tokenizer's files, once they have been read; finalize() does. None: bytes.
  std::shared_ptr<const TokenizerFiles> tokenizer_files = {};
  SampleOrder order = SampleOrder::kShuffled;
  Tail tail = Tail::kDrop;
  Rows rows = Rows::kWindows;
  std::int64_t microbatch_size = 4;       // samples per forward and backward, B
  std::int64_t num_microbatches = 1;      // per optimizer step and rank
  Deal deal = Deal::kSamples;             // as the gradient's sum needs it; finalize() sets it
  std::int64_t step_microbatches = 0;     // of all ranks, dealt whole; 0: num_microbatches on each
  std::int64_t context = 128;             // tokens per row, T
  std::int64_t vocab_size = 0;            // that the model has; 0: that of the tokenizer
  std::int64_t validation_samples = 128;  // that an evaluation reads; 0 means all
  std::uint64_t seed = 1;                 // of the run; the order's own seed derives from it
  bool overfit_one_batch = false;         // every step trains on the samples of the first one
  bool is_pinned = false;  // batches lie where a GPU fetches them while the host goes on
};

}  // namespace ladder
