// The log-probabilities that a frozen reference model gives to all pairs, on disk: computed once,
// so that later runs need neither the model's memory nor its forwards.
//
// The file is a safetensors file. Its metadata say what it belongs to: the model and the data, by
// hashes, and what else changes what the same parameters say: --precision and the options that no
// shape tells (--heads, …). A cache of anything else is refused. A hash of the values themselves tells a damaged file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/mesh.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/options/options.hpp"
#include "common/train/run.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"

namespace ladder {

using LoadReference = std::function<std::unique_ptr<InferenceModel>()>;

class ReferenceCache {
 public:
  // Reads the file of --dpo-reference-cache on every rank. Only if there is none, it loads the
  // reference, whose parameters have this hash, lets it score all training and validation pairs in
  // microbatches of the run's size, each replica its share, and rank 0 writes the file. Collective
  // over the world. Throws CheckError naming the file: with both values if it is stale; if it is
  // damaged; and before anything is scored, if it cannot be made, or if another process makes it.
  ReferenceCache(const TrainOptions& options, const std::string& reference_hash,
                 const BatchStream& batches, const LoadReference& load_reference, const Mesh& mesh,
                 Run& run);

  // [2B] of B pairs: those of the chosen answers, then those of the rejected ones.
  at::Tensor log_probs(const std::vector<std::int64_t>& samples, bool is_validation) const;

 private:
  using Metadata = std::map<std::string, std::string>;  // what the file belongs to

  void make(const std::string& file, Metadata metadata, const TrainOptions& options,
            const BatchStream& batches, const LoadReference& load_reference, const Mesh& mesh,
            Run& run);
  void read(const std::string& file, const Metadata& metadata, const BatchStream& batches);
  std::string hash() const;  // of the values

  at::Tensor training_, validation_;  // [pairs, 2]
};

}  // namespace ladder
