#include "common/model/modules.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "common/model/find_operator.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// oneDNN's product: x [M, K] times the transpose of weight [N, K], plus bias [N]. libtorch
// registers it for its compiler. Null if this libtorch does not have it with this signature.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::string_view,
                                   c10::List<std::optional<at::Scalar>>,
                                   std::optional<c10::string_view>);

const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle =
      find_operator<LinearPointwise>("mkldnn::_linear_pointwise", c10::DispatchKey::CPU);
  return handle ? &*handle : nullptr;
}

using OptionalTensor = std::optional<at::Tensor>;

// x [M, K] times the transpose of weight [N, K], plus bias [N].
at::Tensor times_transposed(Products products, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias = {}) {
  const auto* onednn = products == Products::kOneDnn ? onednn_linear() : nullptr;
  if (onednn != nullptr && x.is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0) {
    // If a weight is dense in neither orientation, oneDNN's reference loop runs, 500 times slower.
    const bool is_dense = weight.is_contiguous() || weight.t().is_contiguous();
    return onednn->call(x, is_dense ? weight : weight.contiguous(), bias, "none",
                        c10::List<std::optional<at::Scalar>>(), "");
  }
  return bias ? at::addmm(*bias, x, weight.t()) : at::mm(x, weight.t());
}

// y = x weightᵀ + bias and its gradients, all three products through times_transposed().
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias, Products products) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["products"] = static_cast<std::int64_t>(products);
    return times_transposed(products, x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& dy = outputs[0];
    const auto products = static_cast<Products>(context->saved_data["products"].toInt());
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = times_transposed(products, dy, weight.t());
    if (context->needs_input_grad(1)) {
      // Choose the product that writes the gradient in the memory order of the weight.
      dweight = weight.is_contiguous() ? times_transposed(products, dy.t(), x.t())
                                       : times_transposed(products, x.t(), dy.t()).t();
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias, at::Tensor()};
  }
};

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                   Products products) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, shape.back()});
  shape.back() = weight.size(0);
  return Product::apply(rows, weight, bias, products).view(shape);
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return product(x, weight.t(), bias.defined() ? OptionalTensor(bias) : std::nullopt, products);
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, Products products) {
  return product(x, weight, std::nullopt, products);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, /*eps=*/1e-5);
}

at::Tensor Attention::operator()(const at::Tensor& x) const {
  const std::int64_t B = x.size(0), T = x.size(1), C = x.size(2);
  const std::vector<at::Tensor> qkv = c_attn(x).split(C, /*dim=*/2);
  const auto heads = [&](const at::Tensor& part) {  // [B, T, C] -> [B, H, T, C/H]
    return part.view({B, T, num_heads, C / num_heads}).transpose(1, 2);
  };
  const at::Tensor mixed =
      at::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]),
                                       /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return c_proj(mixed.transpose(1, 2).reshape({B, T, C}));
}

}  // namespace ladder
