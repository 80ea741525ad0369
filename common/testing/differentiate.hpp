// For tests: what a function of tensors computes, and its gradients, against a formula in double.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "common/testing/closeness.hpp"

namespace ladder {

using Tensors = std::vector<at::Tensor>;

// function(leaves) of new leaves with these values as `type`, and then the leaves' gradients. dy is
// the function's own gradient; without one, its numbers have a mean, so that sums over them grow.
template <class Function>
Tensors differentiate(const Function& function, const Tensors& values, at::ScalarType type,
                      at::Tensor dy = {}) {
  Tensors leaves;
  for (const at::Tensor& each : values)
    leaves.push_back(each.detach().to(type).clone().set_requires_grad(true));
  const at::Tensor y = function(leaves);
  if (!dy.defined()) {
    const at::Tensor wave = at::arange(y.numel(), at::kDouble).sin_().mul_(0.1).add_(0.05);
    dy = wave.to(at::kBFloat16).view(y.sizes());
  }
  Tensors results = torch::autograd::grad({y}, leaves, {dy.to(y.scalar_type())});
  results.insert(results.begin(), y.detach());
  return results;
}

// Expects these to be close to those of `formula` in double, and returns them.
template <class Function, class Formula>
Tensors expect_formula(const Function& function, const Formula& formula, Tensors values,
                       at::ScalarType type, double tolerance) {
  for (at::Tensor& each : values) each = each.to(type);
  const Tensors got = differentiate(function, values, type);
  const Tensors wanted = differentiate(formula, values, at::kDouble);
  EXPECT_EQ(got[0].scalar_type(), type);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(close_in_norm(got[i], wanted[i], tolerance))
        << (i == 0 ? "value" : "gradient ") << i;
  return got;
}

}  // namespace ladder
