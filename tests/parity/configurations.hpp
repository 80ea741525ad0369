// The configurations of the parity ladder: small models and texts that exercise all that can go
// wrong.
#pragma once

#include <string>
#include <vector>

#include "common/testing/temp_folder.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

struct Configuration {
  std::int64_t num_microbatches = 1;
  bool tie_embeddings = true;
  double clip_norm = 0;  // 0 means off
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  Rows rows = Rows::kWindows;
  Tail tail = Tail::kDrop;
  bool has_small_buckets = false;          // several buckets, some tensors larger than one
  bool has_odd_width = false;              // tensors that need padding
  bool is_sequential = false;              // the order of samples
  bool is_bf16 = false;                    // parameters, with fp32 gradients and masters
  bool is_llama = false;                   // whose heads share keys and values
  bool has_other_products = false;         // from the library that this CPU does not take by itself
  Recompute recompute = Recompute::kNone;  // of steps; the oracle keeps everything

  // "m3 tied clip adamw documents pad small-buckets odd shuffled fp32 gpt2 other-products blocks"
  std::string name() const;
};

// A selection in which every pair of values of any two members occurs, but for what is cheap to
// recompute.
std::vector<Configuration> covering_set();
// All 8192, without what is cheap to recompute.
std::vector<Configuration> full_product();

// Ragged documents, conversations and plain text, written once. They have so few samples that an epoch ends, with
// fewer rows than usual, within the steps of a run.
struct Texts {
  explicit Texts(const TempFolder& folder);
  std::string windows;    // .txt
  std::string documents;  // .jsonl
  std::string chat;       // .bin
};

// Finalized options for any step: 12 steps, a bit more than one epoch, for up to 4 ranks.
TrainOptions options_of(const Configuration& configuration, const Texts& texts);

}  // namespace ladder
