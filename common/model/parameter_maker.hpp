// Creates the parameters of one model, each from its own random stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "common/model/model_options.hpp"

namespace ladder {

inline constexpr double kInitStd = 0.02;

class ParameterMaker {
 public:
  // Lifetime: `options` outlives this.
  ParameterMaker(std::uint64_t seed, at::Device device, const ModelOptions& options)
      : seed_(seed), device_(device), options_(options) {}

  // N(0, std), from the stream of this name.
  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double std = kInitStd) const;
  at::Tensor constant(std::int64_t numel, double value) const;  // [numel]

 private:
  at::Tensor empty(at::IntArrayRef shape) const;
  at::Tensor parameter(const at::Tensor& values) const;

  std::uint64_t seed_;
  at::Device device_;
  const ModelOptions& options_;
};

// Of the projections back into the residual stream, which add up over 2L of them.
double residual_std(const ModelOptions& options);

}  // namespace ladder
