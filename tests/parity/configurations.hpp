// What the ladder is climbed with: small models and texts, in which all that can go wrong occurs.
#pragma once

#include <string>
#include <vector>

#include "common/testing/temp_folder.hpp"
#include "common/train/options.hpp"

namespace ladder {

struct Configuration {
  std::int64_t num_microbatches = 1;
  bool tie_embeddings = true;
  double clip_norm = 0;  // 0: off
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  Rows rows = Rows::kWindows;
  Tail tail = Tail::kDrop;
  bool has_small_buckets = false;  // several buckets, some tensors larger than one
  bool has_odd_width = false;      // tensors that need padding
  bool is_sequential = false;      // the order of samples

  std::string name() const;  // "m3 tied clip adamw documents pad small-buckets odd"
};

// Every pair of values of two members occurs in one of them.
std::vector<Configuration> covering_set();
// All 512.
std::vector<Configuration> full_product();

// Ragged documents and plain text, written once: so few samples that an epoch ends, with fewer rows
// than usual, within the steps that are run.
struct Texts {
  explicit Texts(const TempFolder& folder);
  std::string windows;    // .txt
  std::string documents;  // .jsonl
};

// Options of any step, finalized. 12 steps over a bit more than one epoch for up to 4 ranks.
TrainOptions options_of(const Configuration& configuration, const Texts& texts);

}  // namespace ladder
