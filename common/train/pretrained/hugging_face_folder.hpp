// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists.
//
// Names may have the prefix "transformer." or "model.", as those of a whole model have. Buffers
// that a model computes itself, such as GPT-2's attention masks, are skipped. A tied head may be
// stored; then it must equal the embedding. Weights are F32, BF16 or F16.
#pragma once

#include <map>
#include <utility>

#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"

namespace ladder {

class HuggingFaceFolder final : public PretrainedWeights {
 public:
  // Opens all files and compares them with the index. Throws CheckError naming the file, if one is
  // missing, damaged, listed wrongly, or outside the folder by name. (A link in the folder may
  // point anywhere.)
  HuggingFaceFolder(const std::filesystem::path& folder, bool has_tied_head);

  std::vector<PretrainedTensor> tensors() const override;
  void read(const std::string& name, const at::Tensor& target) override;

 private:
  struct File {
    std::string path;
    SafetensorsReader reader;
  };
  struct Place {
    std::size_t file = 0;
    StoredTensor stored;  // by its name in the file
  };

  void add(std::size_t file, const StoredTensor& stored);
  void drop_tied_head();

  std::vector<File> files_;
  std::map<std::string, Place> places_;  // by our names
};

// Which tensors each shard holds, by the shard's file name. Throws CheckError with `path` (a file's
// name) unless every shard is named as a .safetensors file in the same folder.
std::map<std::string, std::vector<std::string>> parse_weight_index(const std::string& text,
                                                                   const std::string& path);

}  // namespace ladder
