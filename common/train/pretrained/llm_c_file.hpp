// llm.c's checkpoint of a GPT-2: a .bin file with 256 words, then all tensors.
//
// The words: 20240326; the version (3: fp32, 5: bf16); context, vocabulary, layers, heads,
// channels, and the vocabulary's padded size. The tensors come kind by kind, each for all layers;
// linear weights are [out, in], the other way round than ours. Of the padded embedding only the
// vocabulary's own rows are read. Format: https://github.com/karpathy/llm.c, train_gpt2.py,
// write_model().
#pragma once

#include <fstream>
#include <map>

#include "common/train/pretrained/pretrained_weights.hpp"

namespace ladder {

class LlmCFile final : public PretrainedWeights {
 public:
  // Throws CheckError with the file's name and what is wrong with it: above all, if its size is not
  // what its first words say.
  explicit LlmCFile(const std::filesystem::path& path);

  const ModelOptions& model() const { return model_; }

  std::vector<PretrainedTensor> tensors() const override;
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
