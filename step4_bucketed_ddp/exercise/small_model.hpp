// For the checks: a model of six tensors in four buckets, no two of the same length, whose gradients
// backward computes in any order asked for.
//
//   a  weight 64 | bias 16       bucket 3: filled to the last element
//   b  weight 200 | bias 16      bucket 2: larger than the capacity | bucket 1
//   c  fixed | gain 32, bias 16  frozen: in no bucket | bucket 0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/optim/flat_model.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder::step4 {

using Order = std::vector<std::size_t>;
inline const Order kForward = {0, 1, 2, 3, 5, 6};  // backward is in the plan's order
inline const Order kMixed = {1, 6, 3, 0, 5, 2};    // it completes bucket 2 first, then 0, 3 and 1

struct SmallModel {
  static constexpr int kNumBuckets = 4;

  // Adds 1 to each gradient, from the last tensor of `order` to the first.
  void backward(const Order& order) const {
    at::Tensor loss = at::zeros({});
    for (const std::size_t tensor : order) loss = loss + leaf(tensor).sum();
    loss.backward();
  }
  at::Tensor leaf(std::size_t tensor) const { return flat.leaves()[tensor].tensor; }
  const std::string& name(std::size_t tensor) const { return flat.leaves()[tensor].name; }

  static std::vector<Unit> units() {
    const auto leaf = [](std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); };
    return {{"a", {{"a.weight", leaf(64)}, {"a.bias", leaf(16)}}},
            {"b", {{"b.weight", leaf(200)}, {"b.bias", leaf(16)}}},
            {"c", {{"c.fixed", at::ones({11})}, {"c.gain", leaf(32)}, {"c.bias", leaf(16)}}}};
  }

  FlatModel flat = FlatModel(units());
  FlatGradients grads = FlatGradients(flat);
  std::vector<GradientBucket> plan = plan_buckets(flat.layout(), /*capacity_bytes=*/4 * 80);
};

}  // namespace ladder::step4
