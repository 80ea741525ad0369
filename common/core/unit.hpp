// Units: the parts of a model, as seen by all code outside the model.
//
// A unit is a group of tensors that the model computes with together: the embedding, one block, the
// head. Units are listed in the order of the forward pass, and so are the tensors of a unit. All
// code that cuts a model into pieces (flat buffers, gradient norms, ZeRO, the pipeline) cuts along
// units and does not depend on the kind of model.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ladder {

struct NamedTensor {
  std::string name;  // unique in the model, for example "h.0.attn.c_attn.weight"
  at::Tensor tensor;
};

struct Unit {
  std::string name;  // "embedding", "block0", …, "head"
  std::vector<NamedTensor> tensors;
};

}  // namespace ladder
