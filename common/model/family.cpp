#include "common/model/family.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "common/core/seed.hpp"

namespace ladder {

at::Tensor ParameterMaker::normal(Unit& unit, const std::string& name, at::IntArrayRef shape,
                                  double std) const {
  at::Tensor tensor = empty(shape);
  if (!tensor.is_meta()) {
    tensor.normal_(0.0, std, at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed_, name)));
  }
  return add(unit, name, tensor);
}

at::Tensor ParameterMaker::constant(Unit& unit, const std::string& name, std::int64_t numel,
                                    double value) const {
  return add(unit, name, empty({numel}).fill_(value));
}

at::Tensor ParameterMaker::empty(at::IntArrayRef shape) const {
  return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_));
}

// Rounds initial values, which are the same in every precision.
at::Tensor ParameterMaker::add(Unit& unit, const std::string& name,
                               const at::Tensor& values) const {
  const Precision& precision = options_.precision;
  at::Tensor leaf = values.to(precision.params).set_requires_grad(true);
  if (precision.grads != precision.params) leaf.set_grad_dtype(precision.grads);
  unit.tensors.push_back({name, leaf});
  return leaf;
}

double residual_std(const ModelOptions& options) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(options.layers));
}

// A product saves its input, which queries, keys and values share; GELU saves its input, too, and
// the SwiGLU both of its. So an MLP saves as many of its channels as it has matrices.
std::int64_t Family::saved_bytes_of_block(AttentionPath path) const {
  const std::int64_t C = options_.channels, M = options_.mlp_channels;
  return 2 * saved_bytes_of_norm() + saved_bytes_of_attention(options_, path) +
         options_.precision.param_bytes() * (3 * C + traits_.mlp_matrices * M);
}

std::int64_t Family::saved_bytes_of_norm() const {
  return options_.precision.param_bytes() * options_.channels + 4 * traits_.norm_statistics;
}

std::int64_t Family::largest_matrix_of_block() const {
  const std::int64_t C = options_.channels;
  return C * std::max(options_.mlp_channels, traits_.has_joint_qkv ? 3 * C : C);
}

std::int64_t Family::flops_of_block() const {
  const std::int64_t C = options_.channels, kv_channels = options_.kv_heads * C / options_.heads;
  const std::int64_t products =
      C * (2 * C + 2 * kv_channels + traits_.mlp_matrices * options_.mlp_channels);
  const std::int64_t attention = 2 * C * options_.context;
  return 2 * (products + attention);
}

}  // namespace ladder
