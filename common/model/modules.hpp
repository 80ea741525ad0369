// Modules of a model's layers. Parameters are plain tensors; no module knows about ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/fused_on_gpu.hpp"
#include "common/model/model_options.hpp"
#include "common/model/products.hpp"

namespace ladder {

// y = x W + b over the last dimension. W is [in, out], as in GPT-2's own files (the transpose of
// torch::nn::Linear's), so a saved model needs no transposition. Forward and backward compute all
// three products with the same library.
struct Linear {
  at::Tensor weight;  // [in, out]
  at::Tensor bias;    // [out], or undefined if there is none
  Products products = faster_products();
  at::Tensor operator()(const at::Tensor& x) const;  // [..., in] -> [..., out]
};

// (x - mean) / sqrt(variance + epsilon) · weight + bias over the last dimension (Ba et al., arXiv
// 1607.06450).
struct LayerNorm {
  at::Tensor weight;  // [C]
  at::Tensor bias;    // [C]
  double epsilon = 1e-5;
  at::Tensor operator()(const at::Tensor& x) const;  // [..., C] -> [..., C]
  // Where a branch of the model begins, and another may end: x + branch, or x, and its norm.
  Fork fork(const at::Tensor& x, const std::optional<at::Tensor>& branch = {}) const;

  std::vector<at::Tensor> weights() const { return {weight, bias}; }
  LayerNorm with(const std::vector<at::Tensor>& others) const {
    return {others[0], others[1], epsilon};
  }
};

// GELU(x W + b).
at::Tensor gelu(const Linear& linear, const at::Tensor& x, GeluForm form = GeluForm::kTanh);

// The rows of weight [V, C] for tokens [...] int64: [..., C].
at::Tensor look_up(const at::Tensor& weight, const at::Tensor& tokens);

// x [..., in] times the transpose of weight [out, in], plus bias [out] if it is defined.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   Products products);

// The same without a bias, also for the head, whose weight may be the token embedding. Returns
// [..., out]; on a GPU, rows start a multiple of 64 elements apart. `is_shared`: another layer uses
// the weight, too. Autograd calls a weight's hooks with the sum of both parts of its gradient; if it
// has any, this part passes through them alone (exact_sums.hpp).
at::Tensor project(const at::Tensor& x, const at::Tensor& weight,
                   Products products = faster_products(), bool is_shared = false);

}  // namespace ladder
