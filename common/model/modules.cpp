#include "common/model/modules.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "common/model/find_operator.hpp"
#include "common/model/weight_gradients.hpp"

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

// Which dimension of a weight is the product's output.
enum class Orientation { kInOut, kOutIn };

// x [M, in] times the weight, plus bias [out].
at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, Orientation orientation,
                    Products products, const OptionalTensor& bias = {}) {
  return times_transposed(products, x, orientation == Orientation::kOutIn ? weight : weight.t(),
                          bias);
}

// y = x · weight + bias and its gradients, all three products through times_transposed().
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias, Orientation orientation,
                            Products products) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    context->saved_data["orientation"] = static_cast<std::int64_t>(orientation);
    context->saved_data["products"] = static_cast<std::int64_t>(products);
    context->saved_data["queue"] = reinterpret_cast<std::int64_t>(DeferWeightGradients::current());
    return multiply(x, weight, orientation, products, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &dy = outputs[0];
    const auto orientation = static_cast<Orientation>(context->saved_data["orientation"].toInt());
    const auto products = static_cast<Products>(context->saved_data["products"].toInt());
    const bool is_out_in = orientation == Orientation::kOutIn;
    // In the memory order of the weight.
    const auto dweight = [=] {
      return is_out_in ? times_transposed(products, dy.t(), x.t())
                       : times_transposed(products, x.t(), dy.t());
    };
    const auto dbias = [=] { return dy.sum(0); };

    variable_list gradients(5);
    if (context->needs_input_grad(0)) {
      gradients[0] = times_transposed(products, dy, is_out_in ? weight.t() : weight);
    }
    auto* queue = reinterpret_cast<WeightGradientQueue*>(context->saved_data["queue"].toInt());
    const auto finish = [&](std::size_t input, const at::Tensor& parameter, const auto& gradient) {
      if (!context->needs_input_grad(input)) return;
      if (queue != nullptr) {
        queue->push({parameter, gradient});
      } else {
        gradients[input] = gradient();
      }
    };
    finish(1, weight, dweight);
    if (bias.defined()) finish(2, bias, dbias);
    return gradients;
  }
};

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                   Orientation orientation, Products products) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, shape.back()});
  shape.back() = weight.size(orientation == Orientation::kOutIn ? 0 : 1);
  return Product::apply(rows, weight, bias, orientation, products).view(shape);
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return product(x, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt,
                 Orientation::kInOut, products);
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, Products products) {
  return product(x, weight, std::nullopt, Orientation::kOutIn, products);
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
