#include "common/model/products.hpp"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "common/core/torch_types.hpp"
#include "common/model/find_operator.hpp"

namespace ladder {
namespace {

// oneDNN's product, which libtorch registers for its compiler.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::string_view,
                                   c10::List<std::optional<at::Scalar>>,
                                   std::optional<c10::string_view>);

// Null if this libtorch does not have it with this signature.
const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle =
      find_operator<LinearPointwise>("mkldnn::_linear_pointwise", c10::DispatchKey::CPU);
  return handle ? &*handle : nullptr;
}

}  // namespace

Products faster_products() {
  static const bool is_onednn_faster =
      onednn_linear() != nullptr && at::get_cpu_capability() == "AVX512";
  return is_onednn_faster ? Products::kOneDnn : Products::kBlas;
}

bool has_instructions_for(NumberFormat format) {
  if (!is_16_bit(format)) return true;
  static const bool has_bf16 = [] {
    const auto capabilities = at::cpu::get_cpu_capabilities();
    const auto has = [&](const char* name) {
      const auto found = capabilities.find(name);
      return found != capabilities.end() && found->second.toBool();
    };
    return has("avx512_bf16") || has("amx_bf16");
  }();
  return format == NumberFormat::kBf16 && has_bf16;
}

std::string cpu_capability() {
  return at::get_cpu_capability();
}

at::Tensor times_transposed(Products products, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
  const auto* onednn = products == Products::kOneDnn ? onednn_linear() : nullptr;
  if (onednn != nullptr && x.is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0) {
    // If a weight is dense in neither orientation, oneDNN's reference loop runs, 500 times slower.
    const bool is_dense = weight.is_contiguous() || weight.t().is_contiguous();
    return onednn->call(x, is_dense ? weight : weight.contiguous(), bias, "none",
                        c10::List<std::optional<at::Scalar>>(), "");
  }
  if (x.is_cpu() && is_16_bit(x.scalar_type()) &&
      !has_instructions_for(format_of(x.scalar_type()))) {
    const auto wide_bias = bias ? std::optional(widened(*bias)) : std::nullopt;
    return times_transposed(products, widened(x), widened(weight), wide_bias).to(x.scalar_type());
  }
  return bias ? at::addmm(*bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor times_transposed(Products products, const at::Tensor& x, const at::Tensor& weight) {
  return times_transposed(products, x, weight, std::nullopt);
}

}  // namespace ladder
