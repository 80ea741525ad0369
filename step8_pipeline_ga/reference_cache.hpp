// The log-probabilities that a frozen reference model gives to all pairs, on disk: computed once,
// so that later runs need neither the model's memory nor its forwards.
//
// The file is a safetensors file. Its metadata name the model and the data, by hashes, that it
// belongs to: a cache of another model or of other data is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/mesh.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/run.hpp"
#include "step8_pipeline_ga/inference_model.hpp"

namespace ladder {

using LoadReference = std::function<std::unique_ptr<InferenceModel>()>;

class ReferenceCache {
 public:
  // Reads `file` on every rank. Only if there is none, it loads the reference, whose parameters have
  // this hash, lets it score all training and validation pairs in microbatches of `rows` pairs, each
  // replica its share, and rank 0 writes the file. Collective over the world. Throws CheckError
  // naming the file, and both hashes, if it is stale, or damaged.
  ReferenceCache(const std::string& file, const std::string& reference_hash,
                 const BatchStream& batches, const LoadReference& load_reference, std::int64_t rows,
                 const Mesh& mesh, Run& run);

  // [2B] of B pairs: those of the chosen answers, then those of the rejected ones.
  at::Tensor log_probs(const std::vector<std::int64_t>& samples, bool is_validation) const;

 private:
  at::Tensor training_, validation_;  // [pairs, 2]
};

}  // namespace ladder
