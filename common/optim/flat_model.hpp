// A model's parameters as views of one flat buffer, and its gradients as views of another.
//
// Code that processes all parameters (the optimizer, the gradient norm, a collective) works on one
// tensor instead of a hundred, without a copy: the model's own tensors are views of that memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder {

class FlatModel {
 public:
  // Allocates the buffer, all zeros, counted as parameters: 4 bytes per element of the layout, or 2
  // if its precision says so.
  explicit FlatModel(const FlatLayout& layout);

  // Moves the next unit of the layout into the buffer: each tensor, a handle that the model
  // continues to use, keeps its values and becomes a view of the buffer. Call this with each unit
  // as soon as it is created, so that the model never exists twice: even a copy that is freed at
  // once stays in the process's heap. Throws CheckError naming a tensor that is not the next one of
  // the layout or has another type.
  void add(const Unit& unit);

  // A view of values that are stored elsewhere, such as an optimizer's masters: params
  // [layout.numel]. It has no leaves.
  FlatModel(FlatLayout layout, at::Tensor params)
      : layout_(std::move(layout)), params_(std::move(params)) {}

  // Does both, for units that already exist.
  explicit FlatModel(const std::vector<Unit>& units, std::int64_t unit_multiple = 1);

  const FlatLayout& layout() const { return layout_; }
  const at::Tensor& params() const { return params_; }  // [layout().numel]

  // The parameters as views with the tensors' own shapes, in the layout's order.
  std::vector<NamedTensor> named_params() const;
  // The model's own tensors, in the layout's order. Autograd's hooks are set on these.
  const std::vector<NamedTensor>& leaves() const { return leaves_; }

 private:
  FlatLayout layout_;
  at::Tensor params_;
  std::vector<NamedTensor> leaves_;
};

// The gradients of a whole model, for steps in which each rank keeps all of them (0 to 5).
class FlatGradients {
 public:
  // Allocates the buffer, all zeros, counted as gradients: 4 bytes per element of the layout,
  // whatever the parameters are, unless its precision asks for 16 bits. The
  // .grad of every trainable tensor becomes a view of it, which backward adds to. Throws CheckError
  // if not all units are in the model yet. Lifetime: `model` must outlive this.
  explicit FlatGradients(const FlatModel& model);

  const FlatLayout& layout() const { return model_.layout(); }
  const std::vector<NamedTensor>& leaves() const { return model_.leaves(); }
  const at::Tensor& flat() const { return flat_; }  // [layout().numel]
  void zero();                                      // in place, keeping the memory

 private:
  const FlatModel& model_;
  at::Tensor flat_;
};

// Views of the layout's tensors in a flat buffer, with the tensors' shapes.
std::vector<NamedTensor> named_views(const FlatLayout& layout, const at::Tensor& flat);

// Views [unit.numel] of the layout's units in a flat buffer.
std::vector<at::Tensor> unit_views(const FlatLayout& layout, const at::Tensor& flat);

}  // namespace ladder
