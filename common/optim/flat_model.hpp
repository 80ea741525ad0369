// A model's parameters, and its gradients, as views into a flat buffer each.
//
// Whoever goes through all parameters (the optimizer, the gradient norm, a collective) works on one
// tensor instead of a hundred, without a copy: the model's own tensors are views of the same memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder {

class FlatModel {
 public:
  // The buffer, all zero: 4 bytes per element of the layout, counted as parameters.
  explicit FlatModel(const FlatLayout& layout);

  // Moves the next unit of the layout into the buffer: each tensor, a handle that the model goes on
  // using, keeps its values and becomes a view of them. Call it with each unit as soon as the unit is
  // made, and the model never exists twice: a second copy, even one that is freed at once, stays in
  // the process's heap. Throws CheckError naming a tensor that is not the next one of the layout, or
  // not fp32.
  void add(const Unit& unit);

  // Both at once, for units that exist already.
  explicit FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple = 1);

  const FlatLayout& layout() const { return layout_; }
  const at::Tensor& params() const { return params_; }  // [layout().numel]

  // The parameters as views with the tensors' own shapes, in the layout's order.
  std::vector<NamedTensor> named_params() const;
  // The model's own tensors, in the layout's order: what autograd's hooks are set on.
  const std::vector<NamedTensor>& leaves() const { return leaves_; }

 private:
  FlatLayout layout_;
  at::Tensor params_;
  std::vector<NamedTensor> leaves_;
};

// The gradients of a whole model, where a rank keeps all of them (steps 0 to 5).
class FlatGradients {
 public:
  // The buffer, all zero: 4 bytes per element of the layout, counted as gradients. The .grad of every
  // trainable tensor becomes a view of it, which backward adds to. Construct it when all units are in
  // the model. Lifetime: `model` outlives this.
  explicit FlatGradients(const FlatModel& model);

  const FlatLayout& layout() const { return model_.layout(); }
  const std::vector<NamedTensor>& leaves() const { return model_.leaves(); }
  const at::Tensor& flat() const { return flat_; }  // [layout().numel]
  void zero();                                      // in place: the memory stays

 private:
  const FlatModel& model_;
  at::Tensor flat_;
};

// The parts of a flat buffer that belong to the layout's tensors, with their shapes, as views.
std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat);

// The parts of a flat buffer that belong to the layout's units, as views [unit.numel].
std::vector<at::Tensor> unit_views(const FlatLayout& layout, const at::Tensor& flat);

}  // namespace ladder
