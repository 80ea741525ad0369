#include "common/model/family.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "common/core/seed.hpp"

namespace ladder {

at::Tensor ParameterMaker::normal(const std::string& name, at::IntArrayRef shape,
                                  double std) const {
  at::Tensor tensor = empty(shape);
  if (!tensor.is_meta()) {
    tensor.normal_(0.0, std, at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed_, name)));
  }
  return parameter(tensor);
}

at::Tensor ParameterMaker::constant(std::int64_t numel, double value) const {
  return parameter(empty({numel}).fill_(value));
}

at::Tensor ParameterMaker::empty(at::IntArrayRef shape) const {
  return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_));
}

// Rounds initial values, which are the same in every precision.
at::Tensor ParameterMaker::parameter(const at::Tensor& values) const {
  const Precision& precision = options_.precision;
  at::Tensor leaf = values.to(precision.params).set_requires_grad(true);
  if (precision.grads != precision.params) leaf.set_grad_dtype(precision.grads);
  return leaf;
}

double residual_std(const ModelOptions& options) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(options.layers));
}

}  // namespace ladder
