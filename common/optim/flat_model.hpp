// A model's parameters and gradients as views into two flat buffers.
//
// Whoever walks all parameters (the optimizer, the gradient norm, a collective) works on one tensor
// instead of a hundred, without a copy: the model's own tensors are views of the same memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder {

// Whether the gradients have a flat buffer too, or somebody else looks after them (step 6).
enum class FlatGrads { kHeld, kElsewhere };

class FlatModel {
 public:
  // The buffers, all zero: 4 bytes per element of the layout for the parameters and 4 for the
  // gradients, counted under these categories. With kElsewhere there is no flat gradient: grads() and
  // the tensors' .grad stay undefined.
  explicit FlatModel(const FlatLayout& layout, FlatGrads flat_grads = FlatGrads::kHeld);

  // Moves the next unit of the layout into the buffers: each tensor, a handle that the model goes on
  // using, keeps its values and becomes a view of them, as does its .grad. Pass it to Gpt as
  // on_unit, and the model never exists twice: a second copy, even one that is freed at once, stays
  // in the process's heap. Throws CheckError naming a tensor that is not the next one of the layout, or
  // not fp32.
  void add(const Unit& unit);

  // Both at once, for units that exist already.
  explicit FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple = 1,
                     FlatGrads flat_grads = FlatGrads::kHeld);

  const FlatLayout& layout() const { return layout_; }
  const at::Tensor& params() const { return params_; }  // [layout().numel]
  const at::Tensor& grads() const { return grads_; }    // [layout().numel]
  void zero_grad();                                     // in place: the memory stays

  // Views with the tensors' own shapes, in the layout's order.
  std::vector<NamedTensor> named_params() const;
  std::vector<NamedTensor> named_grads() const;
  // The model's own tensors, in the layout's order: what autograd's hooks are set on.
  const std::vector<NamedTensor>& leaves() const { return leaves_; }

 private:
  FlatLayout layout_;
  at::Tensor params_;
  at::Tensor grads_;
  std::vector<NamedTensor> leaves_;
};

// The parts of a flat buffer that belong to the layout's tensors, with their shapes, as views.
std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat);

}  // namespace ladder
