// The parameters of a model that another program has written, by our names and in our shapes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/family.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/checkpoint/state_tensors.hpp"

namespace ladder {

class PretrainedWeights {
 public:
  virtual ~PretrainedWeights() = default;

  virtual std::vector<FoundTensor> tensors() const = 0;  // by our names

  // Copies the first rows of the tensor into `target`, as many as that has, converted to its type;
  // all other dimensions are the same. Holds a small piece of the file at a time. Throws CheckError
  // naming the file if that cannot be read.
  virtual void read(const std::string& name, const at::Tensor& target) = 0;
};

// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists.
//
// Names may have a family's prefix ("transformer.", "model."), as those of a whole model have.
// Buffers that a model computes itself, such as GPT-2's attention masks, are skipped. A tied head may be
// stored; then it must equal the embedding, or take its place. Weights are F32, BF16 or F16.
class HuggingFaceFolder final : public PretrainedWeights {
 public:
  // Opens all files and compares them with the index. Throws CheckError naming the file, if one is
  // missing, damaged, listed wrongly, or outside the folder by name. (A link in the folder may
  // point anywhere.)
  HuggingFaceFolder(const std::filesystem::path& folder, ModelFamily family, bool has_tied_head);

  std::vector<FoundTensor> tensors() const override;
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

  const FamilyTraits& traits_;
  std::vector<File> files_;
  std::map<std::string, Place> places_;  // by our names
};

// Which tensors each shard holds, by the shard's file name. Throws CheckError with `path` (a file's
// name) unless every shard is named as a .safetensors file in the same folder.
std::map<std::string, std::vector<std::string>> parse_weight_index(const std::string& text,
                                                                   const std::string& path);

// llm.c's checkpoint of a GPT-2: a .bin file with 256 words, then all tensors.
//
// The words: 20240326; the version (3: fp32, 5: bf16); context, vocabulary, layers, heads,
// channels, and the vocabulary's padded size. The tensors come kind by kind, each for all layers;
// linear weights are [out, in], the other way round than ours. Of the padded embedding only the
// vocabulary's own rows are read. Format: https://github.com/karpathy/llm.c, train_gpt2.py,
// write_model().
class LlmCFile final : public PretrainedWeights {
 public:
  // Throws CheckError with the file's name and what is wrong with it: above all, if its size is not
  // what its first words say.
  explicit LlmCFile(const std::filesystem::path& path);

  const ModelOptions& model() const { return model_; }

  std::vector<FoundTensor> tensors() const override;
  void read(const std::string& name, const at::Tensor& target) override;

 private:
  struct Place {
    std::int64_t offset = 0;  // in the file
    std::vector<std::int64_t> shape;
    bool is_transposed = false;
  };

  void read_words();
  // Places these tensors next in the file, for each layer if the name has a "*" for it. A linear
  // weight's shape is [in, out].
  void place(const std::string& pattern, const std::vector<std::int64_t>& shape,
             bool is_transposed = false);

  std::string path_;
  std::ifstream file_;
  ModelOptions model_;
  at::ScalarType type_ = at::kFloat;
  std::int64_t padded_vocab_ = 0;
  std::int64_t end_ = 0;  // of what has been placed
  std::map<std::string, Place> places_;
};

}  // namespace ladder
