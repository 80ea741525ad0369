// Units: what a model is made of, as everything outside the model sees it.
//
// A unit is a group of tensors that is computed with together: the embedding, one block, the head.
// Units come in the order of the forward pass, and so do the tensors of a unit. Everything that
// cuts a model into pieces (flat buffers, gradient norms, ZeRO, the pipeline) cuts along units and
// never asks what kind of model it is.
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
