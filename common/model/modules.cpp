#include "common/model/modules.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "common/core/torch_types.hpp"
#include "common/model/gelu.hpp"
#include "common/model/recipes.hpp"
#include "common/model/weight_gradients.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using OptionalTensor = std::optional<at::Tensor>;

// Which dimension of a weight is the product's output.
enum class Orientation { kInOut, kOutIn };

// x [M, in] times the transpose of weight [out, in], into rows that start 64 elements apart, or a
// multiple of that. GPT-2 has 50,257 logits: of rows one after the other, every second one of 16
// bits would start where a GPU cannot load two numbers at once, in all three products of the head.
at::Tensor into_aligned_rows(const at::Tensor& x, const at::Tensor& weight) {
  const std::int64_t M = x.size(0), out = weight.size(0), stride = (out + 63) / 64 * 64;
  at::Tensor y = at::empty_strided({M, out}, {stride, 1}, x.options());
  return at::mm_out(y, x, weight.t());
}

// x [M, in] times the weight, plus bias [out].
at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, Orientation orientation,
                    Products products, const OptionalTensor& bias = {}) {
  if (x.is_cuda() && orientation == Orientation::kOutIn && !bias)
    return into_aligned_rows(x, weight);
  return times_transposed(products, x, orientation == Orientation::kOutIn ? weight : weight.t(),
                          bias);
}

// The parameters of a product whose wgrad is deferred, and where to; or nowhere, if it is to be
// added at once. Autograd does not see them: its hooks would fire for a gradient that is not there
// yet, or for the sum of two.
struct Deferred : torch::CustomClassHolder {
  Deferred(WeightGradientQueue* to, at::Tensor weight_leaf, OptionalTensor bias_leaf)
      : queue(to), weight(std::move(weight_leaf)), bias(std::move(bias_leaf)) {}
  void finish(const at::Tensor& parameter, std::function<at::Tensor()> gradient) const {
    if (!parameter.requires_grad()) return;
    queue == nullptr ? add_gradient(parameter, gradient())
                     : queue->push({parameter, std::move(gradient)});
  }
  WeightGradientQueue* queue;
  at::Tensor weight;
  OptionalTensor bias;
};

// The type in which a weight's gradient leaves its product. A GPU adds up in fp32, and if gradients
// are stored in fp32, there is no reason to round in between.
at::ScalarType gradient_type(const at::Tensor& weight) {
  const bool is_wide = weight.is_cuda() && weight.is_leaf() && weight.grad_dtype() == at::kFloat;
  return is_wide ? at::kFloat : weight.scalar_type();
}

// a [M, K] times the transpose of b [N, K].
at::Tensor weight_gradient(Products products, const at::Tensor& a, const at::Tensor& b,
                           at::ScalarType type) {
  return type == a.scalar_type() ? times_transposed(products, a, b) : at::mm(a, b.t(), type);
}

// How a product's input is made again; nothing of it if it is kept.
struct Making : torch::CustomClassHolder {
  explicit Making(const Recipe& recipe) : make(recipe.make) {}
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;
};

// y = x · weight + bias and its gradients.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias, Orientation orientation, Products products,
                            const c10::intrusive_ptr<Deferred>& deferred, const Recipe* recipe) {
    variable_list saved = {weight};
    if (recipe == nullptr) {
      saved.push_back(x);
    } else {
      saved.insert(saved.end(), recipe->from.begin(), recipe->from.end());
      context->saved_data["making"] =
          c10::IValue::make_capsule(c10::make_intrusive<Making>(*recipe));
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["orientation"] = static_cast<std::int64_t>(orientation);
    context->saved_data["products"] = static_cast<std::int64_t>(products);
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["gradient_type"] =
        static_cast<std::int64_t>(gradient_type(deferred ? deferred->weight : weight));
    if (deferred) context->saved_data["deferred"] = c10::IValue::make_capsule(deferred);
    return multiply(x, weight, orientation, products, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &dy = outputs[0];
    // x, or what it is made from, without the graph that it comes from, which a deferred half would
    // keep alive, with the chunk's input and the gradient of that.
    variable_list from(saved.begin() + 1, saved.end());
    for (at::Tensor& tensor : from) tensor = tensor.detach();
    const auto found_making = context->saved_data.find("making");
    c10::intrusive_ptr<torch::CustomClassHolder> making;
    if (found_making != context->saved_data.end()) making = found_making->second.toCapsule();
    const auto input = [=] {  // [M, in]
      if (!making) return from[0];
      const at::Tensor made = static_cast<const Making&>(*making).make(from);
      return made.reshape({-1, made.size(-1)});
    };
    const auto products = static_cast<Products>(context->saved_data["products"].toInt());
    const bool is_out_in = context->saved_data["orientation"].toInt() ==
                           static_cast<std::int64_t>(Orientation::kOutIn);
    const auto type = static_cast<at::ScalarType>(context->saved_data["gradient_type"].toInt());
    const auto dweight = [=] {  // in the memory order of the weight
      return is_out_in ? weight_gradient(products, dy.t(), input().t(), type)
                       : weight_gradient(products, input().t(), dy.t(), type);
    };
    const auto dbias = [=] {
      if (has_fused_kernels(dy)) return row_sums_on_gpu(dy).to(type);
      return dy.sum(0, /*keepdim=*/false, type);
    };

    variable_list gradients(7);
    if (context->needs_input_grad(0))
      gradients[0] = times_transposed(products, dy, is_out_in ? weight.t() : weight);
    if (context->needs_input_grad(1)) gradients[1] = dweight();
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      gradients[2] = dbias();
    if (const auto found = context->saved_data.find("deferred");
        found != context->saved_data.end()) {
      const auto& deferred = static_cast<Deferred&>(*found->second.toCapsule());
      deferred.finish(deferred.weight, dweight);
      if (deferred.bias) deferred.finish(*deferred.bias, dbias);
    }
    return gradients;
  }
};

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                   Orientation orientation, Products products, bool is_separate = false) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, shape.back()});
  shape.back() = weight.size(orientation == Orientation::kOutIn ? 0 : 1);
  const Recipe* const recipe = recipe_of(x);
  WeightGradientQueue* queue = DeferWeightGradients::current();
  const bool is_deferred = queue != nullptr || is_separate;
  if (!is_deferred || !rows.requires_grad())  // no first half without a gradient of the input
    return Product::apply(rows, weight, bias, orientation, products, nullptr, recipe).view(shape);
  const OptionalTensor hidden_bias = bias ? OptionalTensor(bias->detach()) : std::nullopt;
  return Product::apply(rows, weight.detach(), hidden_bias, orientation, products,
                        c10::make_intrusive<Deferred>(queue, weight, bias), recipe)
      .view(shape);
}

// A LayerNorm whose 16-bit values are rounded once, where they leave it. libtorch's own backward
// adds up the gradients of weight and bias over all tokens in the activations' format: in bf16 they
// are off by 30% after 4096 tokens (step 0's chapter on precision).
struct NarrowLayerNorm : torch::autograd::Function<NarrowLayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double epsilon) {
    const auto [y, mean, deviation] =
        at::native_layer_norm(x, {x.size(-1)}, widened(weight), widened(bias), epsilon);
    context->save_for_backward({x, weight, bias, mean, deviation});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        widened(outputs[0]), widened(x), {x.size(-1)}, saved[3], saved[4], widened(saved[1]),
        widened(saved[2]), {true, true, true});
    return {dx.to(x.scalar_type()), dweight, dbias, {}};
  }
};

// An embedding whose 16-bit gradient is rounded once: a frequent token's is a long sum. On a GPU,
// too, ATen adds up in 16 bits as long as there are no more than 3072 tokens.
struct NarrowLookUp : torch::autograd::Function<NarrowLookUp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& tokens) {
    context->save_for_backward({tokens});
    context->saved_data["num_tokens"] = weight.size(0);
    return at::embedding(weight, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    return {at::embedding_dense_backward(widened(outputs[0]), tokens,
                                         context->saved_data["num_tokens"].toInt(),
                                         /*padding_idx=*/-1, /*scale_grad_by_freq=*/false),
            {}};
  }
};

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return product(x, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt,
                 Orientation::kInOut, products);
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   Products products) {
  return product(x, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt,
                 Orientation::kOutIn, products);
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, Products products,
                   bool is_shared) {
  return product(x, weight, std::nullopt, Orientation::kOutIn, products,
                 is_shared && has_hooks(weight));
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  if (has_fused_layer_norm(x)) return add_layer_norm_on_gpu(x, {}, weight, bias, epsilon).normed;
  if (x.is_cpu() && is_16_bit(x.scalar_type()))
    return NarrowLayerNorm::apply(x, weight, bias, epsilon);
  return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

Fork LayerNorm::fork(const at::Tensor& x, const OptionalTensor& branch) const {
  Fork fork;
  if (has_fused_layer_norm(x)) {
    fork = add_layer_norm_on_gpu(x, branch, weight, bias, epsilon);
  } else {
    fork.stream = branch ? x + *branch : x;
    fork.normed = (*this)(fork.stream);
  }
  noted(fork.normed, {{fork.stream}, [norm = *this](const auto& from) { return norm(from[0]); }});
  return fork;
}

at::Tensor gelu(const Linear& linear, const at::Tensor& x, GeluForm form) {
  if (form == GeluForm::kExact || !has_fused_kernels(x)) {
    const at::Tensor before = linear(x);
    return noted(gelu(before, form),
                 {{before}, [form](const auto& from) { return gelu(from[0], form); }});
  }
  const Linear without_bias = {.weight = linear.weight, .bias = {}, .products = linear.products};
  const at::Tensor before = without_bias(x);
  return noted(bias_gelu_on_gpu(before, linear.bias),
               {{before}, [bias = linear.bias](const auto& from) {
                  return bias_gelu_on_gpu(from[0], bias);
                }});
}

at::Tensor look_up(const at::Tensor& weight, const at::Tensor& tokens) {
  return is_16_bit(weight.scalar_type()) ? NarrowLookUp::apply(weight, tokens)
                                         : at::embedding(weight, tokens);
}

}  // namespace ladder
