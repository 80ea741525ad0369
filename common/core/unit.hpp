// Units: the parts of a model, as seen by all code outside the model.
//
// A unit is a group of tensors that the model computes with together: the embedding, one block, the
// head. Units are listed in the order of the forward pass, and so are the tensors of a unit. All
// code that cuts a model into pieces (flat buffers, gradient norms, ZeRO, the pipeline) cuts along
// units and does not depend on the kind of model.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "common/core/unit_shape.hpp"

namespace ladder {

struct NamedTensor {
  std::string name;  // unique in the model, for example "h.0.attn.c_attn.weight"
  at::Tensor tensor;
};

struct Unit {
  std::string name;  // "embedding", "block0", …, "head"
  // What all parts use first, then part after part.
  std::vector<NamedTensor> tensors;
  std::map<std::string, TensorPart> parts = {};  // by the tensors' names
};

}  // namespace ladder
