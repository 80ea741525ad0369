// The parameters of a model that another program has written, by our names and in our shapes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/model/model_options.hpp"

namespace ladder {

struct PretrainedTensor {
  std::string name;  // as in our checkpoints
  std::vector<std::int64_t> shape;
  std::string file;  // that holds it
};

class PretrainedWeights {
 public:
  virtual ~PretrainedWeights() = default;

  virtual std::vector<PretrainedTensor> tensors() const = 0;

  // Copies the first rows of the tensor into `target`, as many as that has, converted to its type;
  // all other dimensions are the same. Holds a small piece of the file at a time. Throws CheckError
  // naming the file if that cannot be read.
  virtual void read(const std::string& name, const at::Tensor& target) = 0;
};

}  // namespace ladder
