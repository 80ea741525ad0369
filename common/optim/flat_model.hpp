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

// Whether a model's gradients have a flat buffer, or are left to somebody else (step 6).
enum class FlatGrads { kHeld, kElsewhere };

class FlatModel {
 public:
  // Moves the tensors' contents into a flat buffer and makes each tensor, and its gradient, a view
  // of it. The tensors are those of the model (a tensor is a handle), which may be used as before.
  // Gradients start at zero. Memory: 4 bytes each for parameters and gradients per element of the
  // layout, counted under these categories; none for gradients that are kElsewhere: grads() is
  // undefined then, and so is .grad. Throws CheckError naming a tensor that is not fp32.
  explicit FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple = 1,
                     FlatGrads flat_grads = FlatGrads::kHeld);

  // The same, with gradients kElsewhere, for a model that is still being made: knows where everything
  // will lie, and takes over unit after unit, so that there is never a second copy of the model (Gpt's
  // on_unit).
  explicit FlatModel(const FlatLayout& layout);
  void add(const Unit& unit);  // the next one of the layout; throws CheckError for another

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
  void hold_grads();

  FlatLayout layout_;
  at::Tensor params_;
  at::Tensor grads_;
  std::vector<NamedTensor> leaves_;
};

// The parts of a flat buffer that belong to the layout's tensors, with their shapes, as views.
std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat);

}  // namespace ladder
